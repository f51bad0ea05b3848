/**
 * Packs the package, installs the tarball in an empty folder without install scripts, and runs it there: nothing it needs
 * at run time may lie outside of what is published.
 */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, describe, test } from 'node:test'

const INSTALL_MS_MAX = 300_000
const SERVE_MS_MAX = 60_000

function packageRoot(): string {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) if (existsSync(join(at, 'tsconfig.json'))) return at
  throw new Error('no tsconfig.json above this test: run it from a checkout')
}

const root = packageRoot()
const folder = mkdtempSync(join(tmpdir(), 'entracte-package-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function run(command: string, args: readonly string[], cwd: string): { stdout: string; status: number | null } {
  const { stdout, stderr, status, error } = spawnSync(command, args, {
    cwd, encoding: 'utf8', timeout: INSTALL_MS_MAX, shell: process.platform === 'win32', env: { ...process.env, ENTRACTE_CACHE: join(folder, 'cache') },
  })
  if (error !== undefined) throw error
  assert.ok(status === 0 || command === process.execPath, `${command} ${args.join(' ')} ended with ${status}:\n${stdout}\n${stderr}`)
  return { stdout, status }
}

describe('the package', () => {
  let files: readonly string[] = []
  let tarball = ''

  test('packs', () => {
    const { stdout } = run('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', folder], root)
    const parsed = JSON.parse(stdout) as Record<string, Packed> | readonly Packed[]
    const packed = Array.isArray(parsed) ? parsed[0] as Packed : Object.values(parsed)[0] as Packed
    tarball = join(folder, packed.filename)
    files = packed.files.map(({ path }) => path)
  })
  test('holds what runs, and no tests, benches or sources', () => {
    for (const path of ['dist/src/cli/main.js', 'LICENSE', 'package.json', 'README.md']) assert.ok(files.includes(path), `${path} is packed`)
    const extra = files.filter((path) => !/^(dist\/src\/|data\/|[^/]+$)/.test(path) || path.endsWith('.ts'))
    assert.deepEqual(extra, [])
  })
  test('installs without install scripts', () => {
    writeFileSync(join(folder, 'package.json'), '{ "private": true }\n')
    run('npm', ['install', '--ignore-scripts', '--prefer-offline', '--no-audit', '--no-fund', '--loglevel=error', tarball], folder)
  })
  test('runs by its name', () => {
    const { stdout } = run('npx', ['--no-install', 'entracte', '--help'], folder)
    assert.match(stdout, /^Usage: entracte /)
  })
  test('finds its libraries there, and loads them', () => {
    const { stdout } = run(process.execPath, [join('node_modules', '.bin', 'entracte'), 'doctor', '--json', '--model', 'tiny', '--data', join(folder, 'data')], folder)
    const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string; found: string }[] }
    const broken = checks.filter(({ name, status }) => status === 'fail' && /^(node|configuration|library|model|store)/.test(name))
    assert.deepEqual(broken, [])
  })
  test('serves there: model, libraries, store and sockets', async () => {
    const entry = join('node_modules', 'entracte', 'dist', 'src', 'cli', 'main.js')
    const env = { ...process.env, ENTRACTE_CACHE: join(folder, 'cache') }
    const server = spawn(process.execPath, [entry, 'serve', '--model', 'tiny', '--port', '0', '--data', join(folder, 'data'), '--log-level', 'warn'], { cwd: folder, env, stdio: ['ignore', 'pipe', 'inherit'] })
    try {
      let said = ''
      server.stdout.setEncoding('utf8').on('data', (text: string) => { said += text })
      while (!said.includes('entracte programs')) await once(server.stdout, 'data', { signal: AbortSignal.timeout(SERVE_MS_MAX) })
      const [, url = '', body = ''] = /curl (\S+) -H [^]* -d '(.+)'/.exec(said) ?? []
      const answer = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body })
      assert.equal(answer.status, 200, await answer.text())
    } finally {
      server.kill('SIGTERM')
      if (server.exitCode === null) await once(server, 'exit')
    }
  })
})

interface Packed { readonly filename: string; readonly files: readonly { readonly path: string }[] }
