/**
 * Owns what a program of an agent would do in a world where nothing goes wrong: its calls, what each is given and says, how
 * long it waits in between. Plans come from a trace or from a generator; a generated one is a function of (seed, number).
 */
import type { Tokens, Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import type { Piece } from './content.ts'

export interface CallPlan {
  /** What the prompt has beyond the conversation so far. */
  readonly given: Tokens
  readonly says: Tokens
  /** `turn`: it answers, and the person comes back after the wait. */
  readonly then: 'tool' | 'turn' | 'end'
  readonly waitUs: Us
  /** Cuts what it says; null: nothing does. */
  readonly maxTokens: Tokens | null
}

export interface ProgramPlan {
  readonly number: number
  readonly tenant: string
  /** How it names itself: a program that is declared, a session, or not at all. */
  readonly named: 'program' | 'session' | 'none'
  readonly agent: string
  /** The first tokens of its first prompt, which all of its kind have; 0 tokens: none. */
  readonly prefix: Piece
  readonly calls: readonly CallPlan[]
  readonly declares: boolean
  readonly finishes: boolean
}

/** How large generated programs are. */
export interface PlanSize {
  readonly callsMax: number
  readonly givenMax: Tokens
  readonly saysMax: Tokens
  readonly waitMaxUs: Us
}

export function generatedPlan(seed: number, number: number, size: PlanSize): ProgramPlan {
  const chance = new Chance(seed, `plan ${number}`)
  const kind = chance.below(3)
  const named = chance.pick(['program', 'program', 'session', 'session', 'none'] as const)
  const count = chance.between(1, size.callsMax)
  const calls = Array.from({ length: count }, (_, at): CallPlan => {
    const last = at === count - 1
    const says = chance.tail(2, size.saysMax)
    return {
      given: at === 0 ? chance.between(20, size.givenMax) : chance.tail(1, size.givenMax),
      says,
      then: last ? 'end' : named === 'session' && chance.hit(200_000) ? 'turn' : 'tool',
      waitUs: chance.tail(1_000, size.waitMaxUs),
      maxTokens: chance.hit(60_000) ? Math.max(1, says - 1) : null,
    }
  })
  return {
    number, named, calls, tenant: chance.pick(['a', 'a', 'b']), agent: `kind-${kind}`, prefix: { kind: 'given', id: 7_000 + kind, tokens: 16 * kind },
    declares: chance.hit(300_000), finishes: chance.hit(800_000),
  }
}
