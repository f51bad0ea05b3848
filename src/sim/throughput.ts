/**
 * Owns a run without faults over given programs, as fast as it goes: for figures, not for proof. The same driver, core,
 * engines and agents as in a world; the log is let go, nothing is compared and no law is checked.
 */
import { CORE_DEFAULTS, type CoreConfig } from '../core/config.ts'
import { engineId } from '../core/ids.ts'
import { seconds, type Us } from '../core/units.ts'
import { Agent, type Runner } from './agent.ts'
import { Texts } from './content.ts'
import { ControlPlane } from './control.ts'
import { Engine } from './engine.ts'
import { Events, settled } from './events.ts'
import { Faults } from './faults.ts'
import { Oracle } from './measure.ts'
import type { ProgramPlan } from './plan.ts'
import { paged } from './shape.ts'

interface Throughput {
  readonly steps: number
  readonly events: number
  readonly facts: number
  readonly virtualUs: Us
  readonly busyPpm: number
  readonly tokensFed: number
  readonly ends: Readonly<Record<string, number>>
}

interface Arrival { readonly atUs: Us; readonly plan: ProgramPlan }

export async function throughput(arrivals: readonly Arrival[], engineCount: number, core: Partial<CoreConfig>, say: (line: string) => void): Promise<Throughput> {
  const seed = 1
  const events = new Events()
  const faults = new Faults(seed, { rates: {}, only: null }, () => undefined)
  const texts = new Texts(true)
  const oracle = new Oracle(texts, false)
  const images = new Map()
  const beganUs = events.nowUs
  let [steps, facts, live] = [0, 0, arrivals.length]
  const stop = (why: string): never => { throw new Error(why) }
  const shape = { ...paged({ contextTokens: 16_384, states: 24, runningMax: 64 }), reportUs: seconds(1), stepsAtOnce: 16 }
  const engines = Array.from({ length: engineCount }, (_, at) => new Engine(engineId(`e${at}`), shape, {
    events, faults, texts, images, oracle, planted: (command) => command, told: () => undefined, breach: (engine, why) => stop(`${engine}: ${why}`),
  }))
  const control = new ControlPlane({
    events, faults, images, seed, engines, config: { ...CORE_DEFAULTS, callsOpenMax: 20_000, tenantCallsOpenMax: 20_000, ...core },
    storeFailure: 'refuse', snapshotEveryFacts: 0, checkEveryTurns: 0, forgets: true,
    noted: (logged) => { steps += 1; facts += logged.length },
    written: () => undefined,
    ended: () => undefined,
    failed: (error) => { throw error },
  })
  control.begin()
  const ends: Record<string, number> = {}
  const ended = ({ outcome }: Runner): void => {
    live -= 1
    const end = outcome ?? 'under way'
    ends[end] = (ends[end] ?? 0) + 1
  }
  for (const { atUs, plan } of arrivals) {
    events.at(beganUs + atUs, () => new Agent({
      events, faults, texts, oracle, seed, interruptMaxUs: CORE_DEFAULTS.interruptMaxUs, current: () => control.current, wrong: (_, why) => stop(why), ended,
      begin: () => stop('no program of a trace has a sub-agent'),
    }, plan).begin())
  }
  for (let told = 0; live > 0 && events.step();) {
    if (!events.alone) await settled()
    if (events.count < told + SAY_EVERY) continue
    told = events.count
    say(`${events.count} events, ${live} programs to go, ${Math.round((events.nowUs - beganUs) / 1e6)} s of virtual time`)
  }
  const busyUs = engines.reduce((sum, engine) => sum + engine.busyUs, 0)
  const virtualUs = events.nowUs - beganUs
  return {
    steps, events: events.count, facts, virtualUs, ends, busyPpm: Math.floor(busyUs / engineCount / virtualUs * 1e6),
    tokensFed: engines.reduce((sum, engine) => sum + engine.tokensFed, 0),
  }
}

const SAY_EVERY = 250_000
