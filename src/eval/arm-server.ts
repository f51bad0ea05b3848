/**
 * Owns one server for one measurement: its folders, from making to removing, and the wait until it can be measured. How a
 * server is started comes as an argument.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { serverConfig, type Arm } from './arm.ts'
import type { MixEngine } from './mix.ts'

interface RunningServer {
  /** Up to and without `/v1`. */
  readonly url: string
  close(): Promise<void>
}

/** Takes what a configuration file would say. */
export type StartServer = (config: Readonly<Record<string, unknown>>) => Promise<RunningServer>

export interface ArmServer extends RunningServer {
  /** The one it serves. */
  readonly model: string
  /** Its engine's answer to whether a resumed State yields the same tokens. */
  readonly exact: string
  /** Where States that were offloaded are. */
  readonly imagesDir: string
}

/** Loading a model of this size takes a second; a slow disk more. */
const READY_MS_MAX = 120_000
/** The probe of exactness runs in the background; measured beside it, an arm would look slow. */
const PROBE_MS_MAX = 120_000
const POLL_MS = 100
/** Memory-backed, so that a copy to host is one. */
const SHARED_MEMORY = '/dev/shm'

/** `signal` calls it off: what was started by then is closed, and its reason thrown. */
export async function startArm(start: StartServer, arm: Arm, engine: MixEngine, model: string, signal: AbortSignal): Promise<ArmServer> {
  const folders = {
    dataDir: mkdtempSync(join(tmpdir(), 'entracte-run-')),
    imagesDir: mkdtempSync(join(arm.images !== 'disk' && existsSync(SHARED_MEMORY) ? SHARED_MEMORY : tmpdir(), 'entracte-run-')),
  }
  const remove = (): void => {
    for (const folder of Object.values(folders)) rmSync(folder, { recursive: true, force: true })
  }
  // Also where the process is made to end before it could close.
  process.once('exit', remove)
  let server: RunningServer | null = null
  const close = async (): Promise<void> => {
    try {
      await server?.close()
    } finally {
      process.off('exit', remove)
      remove()
    }
  }
  try {
    server = await start(serverConfig(arm, engine, model, folders))
    const served = await whenMeasurable(server.url, signal)
    return { url: server.url, close, imagesDir: folders.imagesDir, ...served }
  } catch (error) {
    await close()
    throw error
  }
}

interface Models {
  readonly data: readonly { readonly id: string; readonly entracte?: { readonly engines?: readonly { readonly exact?: { readonly answer?: string } }[] } }[]
}

/** An engine has joined and its probe has answered. */
async function whenMeasurable(url: string, signal: AbortSignal): Promise<{ readonly model: string; readonly exact: string }> {
  signal.throwIfAborted()
  const readyBy = performance.now() + READY_MS_MAX
  let served = await firstModel(url)
  while (served === null) {
    if (performance.now() > readyBy) throw new Error(`no engine joined within ${READY_MS_MAX / 1_000} s`)
    await sleep(POLL_MS, undefined, { signal })
    served = await firstModel(url)
  }
  const probedBy = performance.now() + PROBE_MS_MAX
  while (served.exact === 'unknown' && performance.now() < probedBy) {
    await sleep(POLL_MS, undefined, { signal })
    served = await firstModel(url) ?? served
  }
  return served
}

async function firstModel(url: string): Promise<{ readonly model: string; readonly exact: string } | null> {
  const response = await fetch(`${url}/v1/models`)
  const models = await response.json() as Models
  const [first] = models.data ?? []
  return first === undefined ? null : { model: first.id, exact: first.entracte?.engines?.[0]?.exact?.answer ?? 'no' }
}
