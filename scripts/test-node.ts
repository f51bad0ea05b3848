/**
 * Runs the tests on another Node: `npm run test:node -- 24 [words]`. The binary comes from the npm package
 * `node-<platform>-<arch>`, by name, into a folder that is removed afterwards.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import { buildFolder } from './checkout.ts'

const [version, ...rest] = process.argv.slice(2)
if (version === undefined || !/^\d+(\.\d+){0,2}$/.test(version)) {
  console.error('which Node? For example: npm run test:node -- 24')
  process.exit(2)
}

const folder = mkdtempSync(join(tmpdir(), 'entracte-node-'))
try {
  process.exitCode = run(version, rest)
} finally {
  rmSync(folder, { recursive: true, force: true })
}

function run(wanted: string, words: readonly string[]): number {
  const name = `node-${process.platform === 'win32' ? 'win' : process.platform}-${process.arch}`
  writeFileSync(join(folder, 'package.json'), '{ "private": true }\n')
  console.log(`fetching ${name}@${wanted}`)
  const flags = ['--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error']
  const installed = spawnSync('npm', ['install', ...flags, `${name}@${wanted}`], { cwd: folder, stdio: 'inherit', shell: process.platform === 'win32' })
  if (installed.status !== 0) {
    console.error(`npm could not install ${name}@${wanted}: is there a Node ${wanted} for this platform, and does npm reach its registry?`)
    return 1
  }
  const binary = join(folder, 'node_modules', name, 'bin', process.platform === 'win32' ? 'node.exe' : 'node')
  const env = { ...process.env, PATH: `${dirname(binary)}${delimiter}${process.env['PATH'] ?? ''}` }
  const ran = spawnSync(binary, [join(buildFolder, 'scripts', 'test.js'), ...words], { stdio: 'inherit', env })
  return ran.status ?? 1
}
