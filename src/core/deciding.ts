/** Owns the context of one turn: what may be read, the time, and the one way to say something: `emit` is apply + append. */
import { apply } from './apply.ts'
import { FACT_VERSION, type Fact, type Logged } from './fact.ts'
import type { CoreState } from './state.ts'
import { touch, untouched, type Touched } from './touch.ts'
import type { Us } from './units.ts'

export interface Deciding {
  readonly core: Readonly<CoreState>
  readonly nowUs: Us
  readonly emit: (fact: Fact) => void
  /** What the facts so far may have changed for calls that wait. */
  readonly touched: Touched
}

export function deciding(core: CoreState, nowUs: Us, say: (logged: Logged) => void): Deciding {
  const touched = untouched()
  return {
    core,
    nowUs,
    touched,
    emit(fact) {
      touch(core, fact, touched)
      const logged: Logged = { seq: core.seq + 1, atUs: nowUs, version: FACT_VERSION, fact }
      apply(core, logged)
      say(logged)
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
