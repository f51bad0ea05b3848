/** Owns the context of one step: what may be read, the time, and the one way to say something: `emit` is apply + append. */
import { apply } from './apply.ts'
import { FACT_VERSION, type Fact, type Logged } from './fact.ts'
import type { CoreState } from './state.ts'
import type { Us } from './units.ts'

export interface Deciding {
  readonly core: Readonly<CoreState>
  readonly nowUs: Us
  readonly emit: (fact: Fact) => void
}

export function deciding(core: CoreState, nowUs: Us, facts: Logged[]): Deciding {
  return {
    core,
    nowUs,
    emit(fact) {
      const logged: Logged = { seq: core.seq + 1, atUs: nowUs, version: FACT_VERSION, fact }
      apply(core, logged)
      facts.push(logged)
    },
  }
}

export const ignore = (d: Deciding, input: string, subject: string, why: string): void =>
  d.emit({ kind: 'result.ignored', input, subject, why })

export function setTimer(d: Deciding, timer: string, atUs: Us): void {
  d.emit({ kind: 'timer.set', timer, atUs })
}

export function clearTimer(d: Deciding, timer: string): void {
  if (d.core.timers.has(timer)) d.emit({ kind: 'timer.cleared', timer })
}
