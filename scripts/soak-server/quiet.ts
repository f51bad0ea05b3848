/**
 * Owns what is looked at when nobody asks anything: lanes, sequences, host memory, image files, processes, descriptors.
 * What is still held after everything that may keep it has had its time is leaked. Then every lane is used at once: one
 * that only the engine's own books have lost would be missed.
 */
import { existsSync, readdirSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { kinOf, usageOf, type House } from './house.ts'
import { act, ask } from './request.ts'

/** Longer than a session's prefix, an open tool or an idle program is kept (the soak's configuration). */
const HELD_MS_MAX = 120_000
const POLL_MS = 500
/** Of a process that does the same as before: buffers of the runtime come and go. */
const DESCRIPTORS_SLACK = 6
const FILL_TOKENS = 64

/** Gauges that are zero when nothing is held, by name and the labels that count. */
const HELD: readonly (readonly [string, RegExp])[] = [
  ['entracte_engine_granules', /sort="(owned|reserved)"/],
  ['entracte_engine_sequences', /sort="used"/],
  ['entracte_engine_running_calls', /engine=/],
  ['entracte_kv_host_bytes', /sort="(owned|reserved)"/],
  ['entracte_kv_suspended_bytes', /tier=/],
  ['entracte_queue_calls', /level=/],
  ['entracte_answers_open', /^$/],
  ['entracte_programs', /stage="open"/],
]

/** One process at a quiet point. */
interface Usage { readonly who: string; readonly descriptors: number; readonly rssBytes: number }

export interface Quiet {
  readonly afterS: number
  readonly usages: readonly Usage[]
  /** Why it is not clean. */
  readonly leaks: readonly string[]
  /** As the server counts them since it started. */
  readonly retries: number
}

/** `before`: what the processes had at the first quiet point; null: this is it. */
export async function lookAt(house: House, folder: string, afterS: number, before: readonly Usage[] | null): Promise<Quiet> {
  const leaks = [...await heldLong(house), ...await filled(house), ...filesLeft(house), ...processesLeft(house, folder)]
  const pids = new Map<string, number | null>([['server', house.pid], ...house.engines.map((id) => [id, house.enginePid(id)] as const)])
  const usages = [...pids].flatMap(([who, pid]) => (pid === null ? [] : [{ who, ...usageOf(pid) }]))
  for (const { who, descriptors } of usages) {
    const first = before?.find((one) => one.who === who)?.descriptors ?? descriptors
    if (descriptors > first + DESCRIPTORS_SLACK) leaks.push(`${who} has ${descriptors} descriptors, and had ${first} at the first quiet point`)
  }
  return { afterS, usages, leaks, retries: retriesIn(await metricsOf(house)) }
}

/** Names and values of what is held when all of it should be gone. */
async function heldLong(house: House): Promise<string[]> {
  const byMs = performance.now() + HELD_MS_MAX
  for (;;) {
    const held = heldIn(await metricsOf(house))
    if (held.length === 0 || performance.now() > byMs) return held
    await sleep(POLL_MS)
  }
}

const heldIn = (metrics: string): string[] => metrics.split('\n').filter((line) => {
  const [, name = '', labels = '', value = '0'] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
  return Number(value) > 0 && HELD.some(([gauge, which]) => gauge === name && which.test(labels))
})

const metricsOf = (house: House): Promise<string> => act(house.metrics, 'GET', '/metrics')

const retriesIn = (metrics: string): number => Number(/^entracte_call_retries_total (\S+)$/m.exec(metrics)?.[1] ?? 0)

async function filled(house: House): Promise<string[]> {
  const before = retriesIn(await metricsOf(house))
  const calls = Array.from({ length: house.lanes }, (_, at) => ask(house.place(0), {}, {
    model: house.model, messages: [{ role: 'user', content: `Fill lane ${at}.` }], max_tokens: FILL_TOKENS, ignore_eos: true, seed: at,
  }, null))
  const failed = (await Promise.allSettled(calls)).flatMap((outcome) => (outcome.status === 'rejected' ? [`a call that fills a lane failed: ${String(outcome.reason)}`] : []))
  const retried = retriesIn(await metricsOf(house)) - before
  return retried === 0 ? failed : [...failed, `${retried} of ${house.lanes} calls that fill the lanes needed another attempt`]
}

function filesLeft(house: House): string[] {
  const images = existsSync(house.imagesDir) ? readdirSync(house.imagesDir, { recursive: true, encoding: 'utf8' }).filter((name) => name.includes('.kv')) : []
  const sockets = readdirSync(house.temporaryDir)
  return [
    ...images.map((name) => `the image ${name} is left`),
    ...(sockets.length > house.engines.length ? [`${sockets.length} folders of sockets for ${house.engines.length} engines`] : []),
  ]
}

function processesLeft(house: House, folder: string): string[] {
  const kin = kinOf(house.pid, folder)
  return kin.length === house.engines.length ? [] : [`${kin.length} processes for ${house.engines.length} engines`]
}
