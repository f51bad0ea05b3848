/**
 * Owns `npm run peer`: builds llama.cpp's own server, which benches compare the engine with, from the source that the
 * package of the engine's libraries carries, so that both are one release. Needs git, cmake and a C++ compiler.
 */
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { peerFolder } from '../bench/peer.ts'

const PACKAGE = 'node-llama-cpp'
/** Inside the package. */
const SOURCE = 'package/llama/gitRelease.bundle'
const TARGETS = ['llama-server', 'llama-bench', 'llama-batched-bench']

const folder = process.argv[2] ?? peerFolder()
const tree = join(folder, 'llama.cpp')
const build = join(tree, 'build')

function run(program: string, ...args: readonly string[]): void {
  process.stderr.write(`${program} ${args.join(' ')}\n`)
  execFileSync(program, args, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] })
}

/** That of the installed libraries, which say which package they are of. */
function version(): string {
  const { optionalDependencies } = createRequire(import.meta.url)('../../package.json') as { readonly optionalDependencies: Readonly<Record<string, string>> }
  const found = Object.entries(optionalDependencies).find(([name]) => name.startsWith('@node-llama-cpp/'))
  if (found === undefined) throw new Error('package.json names no libraries of @node-llama-cpp')
  return found[1]
}

mkdirSync(folder, { recursive: true })
if (!existsSync(tree)) {
  const packed = `${PACKAGE}-${version()}`
  run('npm', 'pack', '--silent', `${PACKAGE}@${version()}`)
  run('tar', '-xzf', `${packed}.tgz`, SOURCE)
  run('git', 'clone', '--quiet', SOURCE, tree)
}
run('cmake', '-S', tree, '-B', build, '-DCMAKE_BUILD_TYPE=Release', '-DLLAMA_CURL=OFF', '-DLLAMA_BUILD_TESTS=OFF')
run('cmake', '--build', build, '--target', ...TARGETS, '-j', String(availableParallelism()))
process.stdout.write(`${join(build, 'bin', 'llama-server')}\n`)
