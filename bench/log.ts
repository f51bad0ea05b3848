/**
 * Owns the bench of the log on disk: how many barrier facts a second become durable when many wait, how long one alone
 * takes, and how long a long log takes to replay. No engine and no model take part.
 */
import { columns } from '../src/core/explain/explain-text.ts'
import type { Logged } from '../src/core/fact.ts'
import { tenantId } from '../src/core/ids.ts'
import { recover } from '../src/driver/recover.ts'
import { estimate, median, quantile } from '../src/eval/stats.ts'
import type { Store } from '../src/store/store.ts'
import { bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { Lives, LIVES_CONFIG } from './lives.ts'
import { scratch } from './scratch.ts'

const REPLAY_FACTS = 1_000_000
const REPLAY_FACTS_QUICK = 100_000
const REPLAY_SECONDS_MAX = 10
const REPLAYS = 3
/** Turns that wait for their commit at once, a barrier fact each. */
const WAITING = [1, 16, 256] as const
const MEASURE_MS = 3_000
const MEASURE_MS_QUICK = 500
const CALLS_OF_A_LIFE = 5

const NOT_MEASURED = [
  'other disks and file systems: an fsync is theirs', 'appends beside running calls: nothing else runs here',
  'bodies and images, which share the commits', 'PostgreSQL',
]

export const log: Bench = {
  name: 'log',
  what: 'barrier facts a second, latency of one, and replay of a million',
  needsModel: false,
  run: async (world) => {
    const place = scratch()
    try {
      const store = place.open()
      const durable = []
      for (const waiting of WAITING) durable.push(await measureDurable(world, store, waiting))
      await store.close()
      place.remove()
      return resultOf(world, durable, await measureReplay(world))
    } finally {
      place.remove()
    }
  },
}

interface Durable { readonly waiting: number; readonly factsPerSecond: number; readonly latenciesMs: readonly number[] }

let seq = 0
const barrier = (): Logged => ({
  seq: seq += 1, atUs: seq, version: 1,
  fact: { kind: 'program.refused', tenant: tenantId('a-tenant'), program: `program-${seq}`, code: 'queue_full', why: 'as long a reason as a fact has when it is neither large nor small' },
})

/** A closed loop: whoever is durable appends the next. */
async function measureDurable(world: BenchWorld, store: Store, waiting: number): Promise<Durable> {
  const latenciesMs: number[] = []
  const beganMs = performance.now()
  const untilMs = beganMs + (world.quick ? MEASURE_MS_QUICK : MEASURE_MS)
  await Promise.all(Array.from({ length: waiting }, () => new Promise<void>((resolve) => {
    const next = (): void => {
      const fromMs = performance.now()
      if (fromMs > untilMs || world.signal.aborted) return resolve()
      store.log.append([barrier()], true, () => {
        latenciesMs.push(performance.now() - fromMs)
        next()
      })
    }
    next()
  })))
  const factsPerSecond = latenciesMs.length / ((performance.now() - beganMs) / 1_000)
  world.say(`${waiting} waiting: ${Math.round(factsPerSecond)} facts/s durable`)
  return { waiting, factsPerSecond, latenciesMs }
}

/** `processorSeconds`: beside the wall's, since the difference is what other processes took. */
interface Replay { readonly facts: number; readonly seconds: readonly number[]; readonly processorSeconds: readonly number[] }

async function measureReplay(world: BenchWorld): Promise<Replay> {
  const place = scratch()
  try {
    const store = place.open()
    let facts = 0
    const lives = new Lives((said) => {
      store.log.append(said, false, () => undefined)
      facts += said.length
    })
    const wanted = world.quick ? REPLAY_FACTS_QUICK : REPLAY_FACTS
    while (facts < wanted && !world.signal.aborted) lives.ends(lives.waits(CALLS_OF_A_LIFE))
    await store.close()
    world.say(`a log of ${facts} facts is written`)
    const seconds: number[] = []
    const processorSeconds: number[] = []
    for (let count = 0; count < (world.quick ? 1 : REPLAYS); count += 1) {
      const beganMs = performance.now()
      const began = process.cpuUsage()
      const again = place.open()
      const { core } = recover(LIVES_CONFIG, again.log)
      seconds.push((performance.now() - beganMs) / 1_000)
      const used = process.cpuUsage(began)
      processorSeconds.push((used.user + used.system) / 1e6)
      await again.close()
      if (core.seq !== lives.core.seq) throw new Error(`replay ends with fact ${core.seq} instead of ${lives.core.seq}`)
      world.say(`replayed in ${seconds.at(-1)?.toFixed(2)} s, ${processorSeconds.at(-1)?.toFixed(2)} s of processor`)
    }
    return { facts, seconds, processorSeconds }
  } finally {
    place.remove()
  }
}

function resultOf(world: BenchWorld, durable: readonly Durable[], replay: Replay): BenchResult {
  const took = estimate(replay.seconds, median)
  return {
    bars: world.quick ? [] : [bar('replay', took, 's', `${replay.facts} facts under ${REPLAY_SECONDS_MAX} s`, took.high < REPLAY_SECONDS_MAX)],
    text: [
      ...columns([
        ['turns waiting', 'facts/s durable', 'latency median', 'p99', 'worst'],
        ...durable.map(({ waiting, factsPerSecond, latenciesMs }) => [
          String(waiting), String(Math.round(factsPerSecond)), ms(median(latenciesMs)), ms(quantile(latenciesMs, 0.99)), ms(quantile(latenciesMs, 1)),
        ]),
      ], 'rrrrr'),
      '', `replay of ${replay.facts} facts: ${took.value.toFixed(2)} s, ${Math.round(replay.facts / took.value)} facts/s; ${median(replay.processorSeconds).toFixed(2)} s of processor`,
    ].join('\n'),
    figures: { durable: durable.map(({ latenciesMs, ...rest }) => ({ ...rest, medianMs: median(latenciesMs), p99Ms: quantile(latenciesMs, 0.99) })), replay },
    notMeasured: NOT_MEASURED,
  }
}

const ms = (value: number): string => `${value.toFixed(2)} ms`
