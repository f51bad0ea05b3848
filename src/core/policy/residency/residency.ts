/**
 * Owns the interface of a residency policy: what is done with the KV of a program that waits, and who gives way when
 * memory is wanted. Pure; it proposes, `kv.ts` checks what is possible and carries it out.
 */
import type { KvChoice, KvOption } from '../../fact.ts'
import type { Call, CoreState, Engine, Interrupt, State } from '../../state.ts'
import type { Granules, MicroCost, Us } from '../../units.ts'

export interface ResidencyDecision {
  readonly choice: KvChoice
  readonly options: readonly KvOption[]
  readonly expectedWaitUs: Us
  /** When to decide again; null: only when something happens. */
  readonly reconsiderAtUs: Us | null
  readonly because: string
}

export interface Victim {
  readonly state: State
  readonly choice: 'offload' | 'discard'
  /** What giving it up is expected to cost. */
  readonly regret: MicroCost
}

export interface ResidencyPolicy {
  readonly name: string
  /** A State became idle on device, or its time to decide again has come. `wanted`: ready calls lack memory. */
  decide(core: Readonly<CoreState>, state: Readonly<State>, interrupt: Readonly<Interrupt> | null, wanted: boolean, nowUs: Us): ResidencyDecision
  /** Idle States of an engine, the one to give way first in front. */
  victims(core: Readonly<CoreState>, engine: Readonly<Engine>, nowUs: Us): Victim[]
  /**
   * From when on KV may be lost, at such a regret, so that `call` can run on `engine`; 0: at once, null: not by waiting.
   * A ready call gets a time: nobody waits for ever.
   */
  mayLoseFrom(core: Readonly<CoreState>, state: Readonly<State>, regret: MicroCost, call: Readonly<Call>, engine: Readonly<Engine>): Us | null
  /** States on host, the one to drop first in front. */
  hostVictims(core: Readonly<CoreState>, nowUs: Us): { readonly state: State; readonly regret: MicroCost }[]
}
