/**
 * Owns the server under the soak as a process: its folders, its port, which stay the same over its lives, its engines'
 * pids, and who is killed when. Everything it writes lies in one folder, so that what it leaves behind can be counted.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, openSync, closeSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { freePort } from '../../bench/server-process.ts'
import type { Place } from './request.ts'

export const METRICS_KEY = 'soak-metrics'
const READY_MS_MAX = 120_000
const POLL_MS = 100
/** A server that comes back cuts no call after this. */
const WHOLE_AFTER_MS = 15_000

export interface HouseOptions {
  readonly folder: string
  readonly engines: readonly string[]
  /** As the configuration has it. */
  readonly model: string
  readonly lanes: number
  readonly laneTokens: number
  readonly tenants: readonly { readonly name: string; readonly key: string; readonly class: string }[]
  readonly core: Readonly<Record<string, unknown>>
}

export class House {
  readonly #options: HouseOptions
  #child: ChildProcess | null = null
  #port = 0
  #wholeFromMs = 0
  model = ''

  constructor(options: HouseOptions) {
    this.#options = options
  }

  get pid(): number {
    return this.#child?.pid ?? 0
  }

  get imagesDir(): string {
    return join(this.#options.folder, 'images')
  }

  get temporaryDir(): string {
    return join(this.#options.folder, 'tmp')
  }

  get engines(): readonly string[] {
    return this.#options.engines
  }

  get lanes(): number {
    return this.#options.lanes * this.#options.engines.length
  }

  /** As that tenant. */
  place(tenant: number): Place {
    return { url: this.#url, key: this.#options.tenants[tenant]?.key ?? '' }
  }

  get metrics(): Place {
    return { url: this.#url, key: METRICS_KEY }
  }

  /** False shortly after a start: until then an error may be the end's before it. */
  get isWhole(): boolean {
    return this.#child !== null && performance.now() >= this.#wholeFromMs
  }

  /** Resolves when all engines have joined and know whether they are exact. */
  async start(): Promise<void> {
    const { folder, engines, model, lanes, laneTokens, tenants, core } = this.#options
    if (this.#port === 0) this.#port = await freePort()
    mkdirSync(this.temporaryDir, { recursive: true })
    const file = join(folder, 'serve.yaml')
    writeFileSync(file, JSON.stringify({
      dataDir: join(folder, 'data'), imagesDir: this.imagesDir, listen: { host: '127.0.0.1', port: this.#port }, metricsKey: METRICS_KEY, logLevel: 'warn', tenants, core,
      engines: engines.map((id) => ({ id, kind: 'embedded', model, lanes, laneTokens, threads: 1 })),
    }))
    const log = openSync(join(folder, 'server.log'), 'a')
    const main = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))
    this.#child = spawn(process.execPath, [main, 'serve', '--config', file], { stdio: ['ignore', log, log], env: { ...process.env, TMPDIR: this.temporaryDir } })
    closeSync(log)
    this.#wholeFromMs = Infinity
    await this.#ready(this.#child)
    this.#wholeFromMs = performance.now() + WHOLE_AFTER_MS
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#child
    this.#child = null
    if (child === null || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill(signal)
    await gone
  }

  /** Its pid, where it runs. */
  enginePid(id: string): number | null {
    try {
      return (JSON.parse(readFileSync(join(this.#options.folder, 'data', `${id}.pid`), 'utf8')) as { readonly pid: number }).pid
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null
      throw error
    }
  }

  /** Resolves when it has joined again. */
  async killEngine(id: string): Promise<void> {
    const pid = this.enginePid(id)
    if (pid === null) return
    process.kill(pid, 'SIGKILL')
    await this.#until(() => this.enginePid(id) !== pid && this.enginePid(id) !== null)
  }

  get #url(): string {
    return `http://127.0.0.1:${this.#port}`
  }

  async #ready(child: ChildProcess): Promise<void> {
    await this.#until(async () => {
      if (child.exitCode !== null || child.signalCode !== null) throw new Error(`the server ended before it served: see ${this.#options.folder}/server.log`)
      return (await joined(this.place(0), (id) => { this.model = id })) === this.#options.engines.length
    })
  }

  async #until(holds: () => boolean | Promise<boolean>): Promise<void> {
    const byMs = performance.now() + READY_MS_MAX
    while (!await holds()) {
      if (performance.now() > byMs) throw new Error(`not within ${READY_MS_MAX / 1_000} s: see ${this.#options.folder}/server.log`)
      await sleep(POLL_MS)
    }
  }
}

interface Models { readonly data: readonly { readonly id: string; readonly entracte: { readonly engines: readonly { readonly exact: { readonly answer: string } }[] } }[] }

/** How many engines serve and are known to be exact, or not to be. */
async function joined(place: Place, name: (model: string) => void): Promise<number> {
  try {
    const response = await fetch(`${place.url}/v1/models`, { headers: { authorization: `Bearer ${place.key}` } })
    const [model] = (await response.json() as Models).data
    if (model === undefined) return 0
    name(model.id)
    return model.entracte.engines.filter(({ exact }) => exact.answer !== 'unknown').length
  } catch (error) {
    // Until it listens, connections are refused.
    if (error instanceof TypeError) return 0
    throw error
  }
}

/** Descriptors and resident memory of a process, as the system counts them. */
export function usageOf(pid: number): { readonly descriptors: number; readonly rssBytes: number } {
  const rss = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))
  return { descriptors: readdirSync(`/proc/${pid}/fd`).length, rssBytes: Number(rss?.[1] ?? 0) * 1_024 }
}

/** Processes whose parent is this one, or whose command line names the folder and whose parent is gone. */
export function kinOf(pid: number, folder: string): readonly number[] {
  return readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number).filter((other) => {
    try {
      const parent = Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${other}/status`, 'utf8'))?.[1])
      return parent === pid || (other !== pid && readFileSync(`/proc/${other}/cmdline`, 'utf8').includes(`${folder}/tmp`))
    } catch (error) {
      // It ended while we looked.
      if (error instanceof Error && 'code' in error && (error.code === 'ENOENT' || error.code === 'ESRCH')) return false
      throw error
    }
  })
}
