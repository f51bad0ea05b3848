/**
 * Owns `npm run peer`: builds llama.cpp's own server, which benches compare the engine with, from the source that the
 * package of the engine's libraries carries, so that both are one release. Needs npm, tar, git, cmake and a C++ compiler.
 * What is there already is not made again, and a build that was broken off goes on.
 */
import { spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { join, resolve } from 'node:path'
import { peerFolder, programIn } from '../bench/peer.ts'

const PACKAGE = 'node-llama-cpp'
/** Inside the package. */
const SOURCE = 'package/llama/gitRelease.bundle'
const TARGETS = ['llama-server', 'llama-bench', 'llama-batched-bench']

const folder = resolve(process.argv[2] ?? peerFolder())
const tree = join(folder, 'llama.cpp')
const build = join(tree, 'build')

class Failure extends Error {}

/** `next`: what to do where it fails. */
function run(next: string, program: string, ...args: readonly string[]): void {
  process.stderr.write(`${program} ${args.join(' ')}\n`)
  const { error, status, signal } = spawnSync(program, args, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] })
  if (error !== undefined && 'code' in error && error.code === 'ENOENT') throw new Failure(`there is no program ${program} here: install it and run this again`)
  if (error !== undefined) throw error
  if (status !== 0) throw new Failure(`${program} ended with ${status === null ? `signal ${signal}` : `code ${status}`}: ${next}`)
}

/** That of the installed libraries, which say which package they are of. */
function version(): string {
  const { optionalDependencies } = createRequire(import.meta.url)('../../package.json') as { readonly optionalDependencies: Readonly<Record<string, string>> }
  const found = Object.entries(optionalDependencies).find(([name]) => name.startsWith('@node-llama-cpp/'))
  if (found === undefined) throw new Error('package.json names no libraries of @node-llama-cpp')
  return found[1]
}

function fetchSource(): void {
  const packed = `${PACKAGE}-${version()}`
  run('the package could not be fetched. Give this machine a way to the npm registry, or copy a tree that was built elsewhere, '
    + 'and name its llama-server in ENTRACTE_PEER', 'npm', 'pack', '--silent', `${PACKAGE}@${version()}`)
  run('the package does not hold the source where it was', 'tar', '-xzf', `${packed}.tgz`, SOURCE)
  run('the source in the package cannot be read', 'git', 'clone', '--quiet', SOURCE, tree)
  rmSync(join(folder, `${packed}.tgz`))
  rmSync(join(folder, 'package'), { recursive: true })
}

function make(): void {
  mkdirSync(folder, { recursive: true })
  if (!existsSync(tree)) fetchSource()
  const jobs = String(availableParallelism())
  run('see above; it needs a C++ compiler', 'cmake', '-S', tree, '-B', build, '-DCMAKE_BUILD_TYPE=Release', '-DLLAMA_CURL=OFF', '-DLLAMA_BUILD_TESTS=OFF')
  run('see above; run this again and it goes on from there', 'cmake', '--build', build, '--target', ...TARGETS, '-j', jobs)
}

try {
  const isThere = existsSync(programIn(folder))
  if (isThere) process.stderr.write('it is built already; to build it anew, remove its folder\n')
  else make()
  process.stdout.write(`${programIn(folder)}\n`)
} catch (error) {
  if (!(error instanceof Failure)) throw error
  process.stderr.write(`${error.message}\n`)
  process.exitCode = 1
}
