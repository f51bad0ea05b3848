/**
 * Owns programs at rest. Of most programs nothing is asked for a while: their calls stand in line, or a tool keeps them.
 * Such a program is kept as one text with its threads and calls, a third of what the records take; who asks for any of them
 * wakes it, and they are as they were. It is no decision and no fact: states that differ in it alone are the same.
 *
 * A record must not be held from one turn to the next, for what is written once its program woke again is written to
 * another; its id may. What is walked (`values`, `entries`) of a program at rest is a copy: to read.
 */
import { must } from '../assert.ts'
import type { CallId, ProgramId, ThreadId } from '../ids.ts'
import type { Call, CoreState, Program, Thread } from '../state.ts'
import { textOf, wholeOf, type WholeProgram } from './program-text.ts'

/** Programs looked at, at the end of a turn, for those that may rest: more where more of them are awake beyond the limit, so that it holds, and never so many that a turn gets long. */
const LOOKS_MIN = 4
const LOOKS_MAX = 64
const LOOKS_PER_EXCESS = 8
/** A program with more calls or threads stays awake: to bring it to rest and back would take longer than a turn does. */
const RECORDS_MAX = 32
/** Somebody is about to tell of such a call. */
const AT_WORK: ReadonlySet<Call['stage']['kind']> = new Set(['arrived', 'resuming', 'running', 'pausing'])

type Records = Pick<CoreState, 'programs' | 'threads' | 'calls'>

export function emptyRecords(): Records {
  const programs = new Programs()
  return { programs, threads: programs.threads, calls: programs.calls }
}

/** At the end of a turn: while more than so many are awake that might rest, the longest awake do. */
export function restPrograms({ programs }: Readonly<Records>, awakeMax: number): void {
  // The records of a state that was copied are in maps as others.
  if (programs instanceof Programs) programs.rest(awakeMax)
}

/** Where a record would be there may be a name for where it is, so that a walk is in the order of arrival, whoever rests. */
abstract class Resting<Id extends string, T extends object, Name extends string> extends Map<Id, T> {
  protected kept(id: Id): T | Name | undefined {
    return super.get(id)
  }

  /** For the rest of this file. */
  keep(id: Id, kept: T | Name): void {
    super.set(id, kept as T)
  }

  protected allKept(): Iterable<[Id, T | Name]> {
    return super.entries()
  }

  abstract override entries(): MapIterator<[Id, T]>

  override* values(): MapIterator<T> {
    for (const [, record] of this.entries()) yield record
  }

  override [Symbol.iterator](): MapIterator<[Id, T]> {
    return this.entries()
  }

  override forEach(tell: (record: T, id: Id, map: Map<Id, T>) => void): void {
    for (const [id, record] of this.entries()) tell(record, id, this)
  }
}

/** The name of one at rest is its text. */
class Programs extends Resting<ProgramId, Program, string> {
  readonly threads = new Threads(this)
  readonly calls = new Calls(this)
  /** The longest awake first, and those that might not rest when they were looked at, the longest ago first. */
  readonly #awake = new Set<ProgramId>()
  readonly #busy = new Set<ProgramId>()
  #threadsAtRest = 0

  override get(id: ProgramId): Program | undefined {
    const kept: Program | string | undefined = super.get(id)
    if (typeof kept !== 'string') return kept
    this.wake(id)
    return super.get(id)
  }

  override set(id: ProgramId, program: Program): this {
    if (!this.#busy.has(id)) this.#awake.add(id)
    return super.set(id, program)
  }

  override delete(id: ProgramId): boolean {
    this.wake(id)
    this.#awake.delete(id)
    this.#busy.delete(id)
    return super.delete(id)
  }

  override* entries(): MapIterator<[ProgramId, Program]> {
    for (const [id, kept] of this.allKept()) yield [id, typeof kept === 'string' ? wholeOf(id, kept).program : kept]
  }

  get threadsAtRest(): number {
    return this.#threadsAtRest
  }

  wake(id: ProgramId): void {
    const text = this.kept(id)
    if (typeof text !== 'string') return
    const { program, threads, calls } = wholeOf(id, text)
    for (const thread of threads) this.threads.keep(thread.id, thread)
    for (const call of calls) this.calls.keep(call.id, call)
    this.#threadsAtRest -= threads.length
    this.set(id, program)
  }

  rest(awakeMax: number): void {
    this.#lookAgain()
    const looks = Math.min(LOOKS_MAX, LOOKS_MIN + Math.ceil((this.#awake.size - awakeMax) / LOOKS_PER_EXCESS))
    for (let look = 0; look < looks && this.#awake.size > awakeMax; look += 1) {
      const id = takeFirst(this.#awake)
      if (id === undefined) return
      const program = must(this, id)
      if (this.#mayRest(program)) this.#lay(program)
      else this.#busy.add(id)
    }
  }

  #lookAgain(): void {
    const id = takeFirst(this.#busy)
    if (id === undefined) return
    if (this.#mayRest(must(this, id))) this.#awake.add(id)
    else this.#busy.add(id)
  }

  #mayRest({ threads, calls }: Program): boolean {
    return calls.length <= RECORDS_MAX && threads.length <= RECORDS_MAX && !threads.some((id) => {
      const { active } = must(this.threads, id)
      return active !== null && AT_WORK.has(must(this.calls, active).stage.kind)
    })
  }

  #lay(program: Program): void {
    const { id, threads, calls } = program
    this.keep(id, textOf({ program, threads: threads.map((thread) => must(this.threads, thread)), calls: calls.map((call) => must(this.calls, call)) }))
    for (const thread of threads) this.threads.delete(thread)
    for (const call of calls) this.calls.keep(call, id)
    this.#threadsAtRest += threads.length
  }

  /** A copy of one at rest; null: it is awake. */
  read(id: ProgramId): WholeProgram | null {
    const kept = this.kept(id)
    return typeof kept === 'string' ? wholeOf(id, kept) : null
  }
}

function takeFirst<T>(set: Set<T>): T | undefined {
  for (const first of set) {
    set.delete(first)
    return first
  }
  return undefined
}

/** The name of one at rest is its program's. */
class Calls extends Resting<CallId, Call, ProgramId> {
  readonly #programs: Programs

  constructor(programs: Programs) {
    super()
    this.#programs = programs
  }

  override get(id: CallId): Call | undefined {
    const kept: Call | string | undefined = super.get(id)
    if (typeof kept !== 'string') return kept
    this.#programs.wake(kept)
    return super.get(id)
  }

  override* entries(): MapIterator<[CallId, Call]> {
    const copies = new Map<CallId, Call>()
    for (const [id, kept] of this.allKept()) {
      if (typeof kept === 'string' && !copies.has(id)) for (const call of this.#programs.read(kept)?.calls ?? []) copies.set(call.id, call)
      yield [id, typeof kept === 'string' ? must(copies, id) : kept]
      copies.delete(id)
    }
  }
}

/** One at rest is not in it: its id begins with its program's. Walked by program. */
class Threads extends Resting<ThreadId, Thread, never> {
  readonly #programs: Programs

  constructor(programs: Programs) {
    super()
    this.#programs = programs
  }

  override get(id: ThreadId): Thread | undefined {
    const thread = super.get(id)
    if (thread !== undefined) return thread
    this.#programs.wake(id.slice(0, Math.max(0, id.lastIndexOf('/'))) as ProgramId)
    return super.get(id)
  }

  override has(id: ThreadId): boolean {
    return this.get(id) !== undefined
  }

  override get size(): number {
    return super.size + this.#programs.threadsAtRest
  }

  override* entries(): MapIterator<[ThreadId, Thread]> {
    for (const id of this.#programs.keys()) {
      const whole = this.#programs.read(id)
      const threads = whole?.threads ?? must(this.#programs, id).threads.map((thread) => must(this, thread))
      for (const thread of threads) yield [thread.id, thread]
    }
  }

  override* keys(): MapIterator<ThreadId> {
    for (const [id] of this.entries()) yield id
  }
}
