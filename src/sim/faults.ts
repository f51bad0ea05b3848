/**
 * Owns what goes wrong: the names of the faults, how often each comes, and whether it comes now. Whether the n-th chance of
 * a fault at a subject is taken is a function of (seed, fault, subject, n) and of nothing else, so leaving one out leaves
 * the others where they were; and so a run can be played from a list of the faults that came.
 */
import { Chance, hashOf, PPM } from './chance.ts'

/** Chances in a million, where every fault is on. What a chance is, stands beside it. */
const RATES = {
  // agents, at each call
  'client.hangUp': 40_000,
  'client.duplicate': 40_000,
  'client.cancel': 20_000,
  'client.cancelCall': 40_000,
  'client.cancelThread': 20_000,
  // agents, at each wait for a tool
  'tool.never': 15_000,
  'tool.timeout': 30_000,
  'tool.twice': 30_000,
  'tool.late': 15_000,
  'client.forgets': 30_000,
  // agents, at each node of a graph that is no call
  'tool.fails': 100_000,
  // agents, at each arrival
  'agents.burst': 60_000,
  // each engine, each second
  'engine.crash': 12_000,
  'engine.hang': 12_000,
  'engine.slow': 15_000,
  'engine.drain': 10_000,
  // the wire to each engine, each second; then each message
  'wire.partition': 12_000,
  'wire.cut': 8_000,
  'message.duplicate': 10_000,
  'message.late': 10_000,
  'message.lost': 10_000,
  // each image written; each image read
  'image.noSpace': 30_000,
  'image.corrupt': 30_000,
  'image.lost': 20_000,
  // the control plane, each second
  'control.crash': 15_000,
  'control.takeover': 6_000,
  'clock.step': 20_000,
  'clock.drift': 20_000,
  'clock.sleep': 8_000,
  // each commit; each crash
  'store.slow': 20_000,
  'store.fail': 300,
  'store.torn': 500_000,
} as const

export type FaultName = keyof typeof RATES
export const FAULT_NAMES = Object.keys(RATES) as readonly FaultName[]

/** One fault that came: at the n-th chance it had at this subject. */
export type Occurrence = readonly [fault: FaultName, subject: string, chance: number]

export interface FaultPlan {
  /** Chances in a million, by name; what is not named never comes. */
  readonly rates: Readonly<Partial<Record<FaultName, number>>>
  /** Just these come, whatever the rates say; null: the rates decide. */
  readonly only: readonly Occurrence[] | null
}

export const allFaults = (): FaultPlan => ({ rates: RATES, only: null })

/** `names`: fault names or their first words, as `engine` for all of engines. */
export function faultsNamed(names: readonly string[]): FaultPlan {
  const rates: Partial<Record<FaultName, number>> = {}
  for (const name of names) {
    const meant = FAULT_NAMES.filter((fault) => fault === name || fault.startsWith(`${name}.`))
    if (meant.length === 0) throw new Error(`there is no fault "${name}"; there are ${FAULT_NAMES.join(', ')}`)
    for (const fault of meant) rates[fault] = RATES[fault]
  }
  return { rates, only: null }
}

export class Faults {
  readonly came: Occurrence[] = []
  readonly counts = new Map<FaultName, number>()
  readonly #seed: number
  readonly #tell: (occurrence: Occurrence) => void
  readonly #plan: FaultPlan
  readonly #only: ReadonlySet<string> | null
  readonly #chances = new Map<string, number>()
  #healed = false

  constructor(seed: number, plan: FaultPlan, tell: (occurrence: Occurrence) => void) {
    this.#seed = seed
    this.#tell = tell
    this.#plan = plan
    this.#only = plan.only === null ? null : new Set(plan.only.map(keyOf))
  }

  /** Nothing goes wrong any more. */
  heal(): void {
    this.#healed = true
  }

  /** The draws that say how it goes wrong, where it does now. */
  at(fault: FaultName, subject: string): Chance | null {
    if (this.#healed || (this.#only === null && this.#plan.rates[fault] === undefined)) return null
    const place = `${fault} ${subject}`
    const chance = (this.#chances.get(place) ?? 0) + 1
    this.#chances.set(place, chance)
    const occurrence: Occurrence = [fault, subject, chance]
    const key = keyOf(occurrence)
    const comes = this.#only === null ? hashOf(this.#seed, key) % PPM < (this.#plan.rates[fault] ?? 0) : this.#only.has(key)
    if (!comes) return null
    this.came.push(occurrence)
    this.#tell(occurrence)
    this.counts.set(fault, (this.counts.get(fault) ?? 0) + 1)
    return new Chance(this.#seed, `how ${key}`)
  }
}

const keyOf = ([fault, subject, chance]: Occurrence): string => `${fault} ${subject} ${chance}`
