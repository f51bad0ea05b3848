/**
 * Owns which facts belong to which program, for reading: the newest FACTS_PER_PROGRAM_MAX of each program in memory. It is
 * told of each fact right after it was applied, while what the fact names can still be looked up.
 */
import { programOf } from '../core/asleep/asleep.ts'
import type { Fact, Logged } from '../core/fact.ts'
import type { CallId, InterruptId, ProgramId, StateId } from '../core/ids.ts'
import type { CoreState } from '../core/state.ts'

/** At it the oldest facts of the program leave memory; they stay in the log. */
const FACTS_PER_PROGRAM_MAX = 4_000
/** Of all programs together; at it the facts of the program that began longest ago leave memory. */
export const FACTS_MAX = 400_000

export class Trace {
  readonly #facts = new Map<ProgramId, Logged[]>()
  /** A State's program outlives the State by the fact that forgets it. */
  readonly #programOfState = new Map<StateId, ProgramId>()
  #count = 0

  note(core: Readonly<CoreState>, logged: Logged): void {
    const program = this.#programOf(core, logged.fact)
    if (logged.fact.kind === 'program.forgotten') this.#drop(logged.fact.program)
    else if (program !== null && core.programs.has(program)) this.#keep(program, logged)
    if (logged.fact.kind === 'kv.forgotten') this.#programOfState.delete(logged.fact.state)
  }

  of(program: ProgramId, max: number): readonly Logged[] {
    return (this.#facts.get(program) ?? []).slice(-max)
  }

  /** What `earlier` holds was said before all that is here. */
  precede(earlier: Trace): void {
    const later = [...this.#facts]
    this.#facts.clear()
    for (const [program, facts] of earlier.#facts) this.#facts.set(program, facts)
    for (const [program, facts] of later) {
      this.#facts.set(program, [...this.#facts.get(program) ?? [], ...facts].slice(-FACTS_PER_PROGRAM_MAX))
    }
    this.#count = [...this.#facts.values()].reduce((sum, facts) => sum + facts.length, 0)
    for (const [oldest] of this.#facts) {
      if (this.#count <= FACTS_MAX) break
      this.#drop(oldest)
    }
  }

  #keep(program: ProgramId, logged: Logged): void {
    const facts = this.#facts.get(program) ?? []
    facts.push(logged)
    this.#count += 1
    if (facts.length > FACTS_PER_PROGRAM_MAX) this.#count -= facts.splice(0, facts.length - FACTS_PER_PROGRAM_MAX).length
    this.#facts.set(program, facts)
    for (const [oldest] of this.#facts) {
      if (this.#count <= FACTS_MAX || oldest === program) break
      this.#drop(oldest)
    }
  }

  #drop(program: ProgramId): void {
    this.#count -= this.#facts.get(program)?.length ?? 0
    this.#facts.delete(program)
  }

  #programOf(core: Readonly<CoreState>, fact: Fact): ProgramId | null {
    if (fact.kind === 'program.refused') return null
    if ('program' in fact) return fact.program
    if (fact.kind === 'call.attached' || fact.kind === 'call.replayed') return this.#ofCall(core, fact.as)
    if ('interrupt' in fact && fact.interrupt !== null) return this.#ofInterrupt(core, fact.interrupt)
    const program = 'call' in fact && fact.call !== null ? this.#ofCall(core, fact.call) : null
    if ('state' in fact) {
      const owner = core.states.get(fact.state)?.owner
      const ofThread = owner?.kind === 'thread' ? core.threads.get(owner.thread)?.program ?? null : null
      const found = program ?? ofThread ?? this.#programOfState.get(fact.state) ?? null
      if (found !== null) this.#programOfState.set(fact.state, found)
      return found
    }
    return program
  }

  #ofCall(core: Readonly<CoreState>, call: CallId): ProgramId | null {
    return programOf(core, call) ?? null
  }

  #ofInterrupt(core: Readonly<CoreState>, interrupt: InterruptId): ProgramId | null {
    return core.interrupts.get(interrupt)?.program ?? null
  }
}
