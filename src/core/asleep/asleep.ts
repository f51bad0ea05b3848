/**
 * Owns programs asleep. Of most programs nothing is asked for a while: their calls stand in line, or a tool keeps them.
 * Such a program is kept as one text with its threads and calls, a third of what the records take; who asks for any of them
 * wakes it, and they are as they were. It is no decision and no fact: states that differ in it alone are the same.
 *
 * A record must not be held from one turn to the next, for what is written once its program woke again is written to
 * another; its id may. What is walked (`values`, `entries`) of a program asleep is a copy: to read.
 */
import { InvariantError, must } from '../assert.ts'
import type { CallId, ProgramId, ThreadId } from '../ids.ts'
import type { Call, CoreState, Program, Thread } from '../state.ts'
import { textOf, wholeOf, type WholeProgram } from './program-text.ts'

/**
 * Records that are brought to sleep, and programs that are looked at for it, at the end of a turn: more than
 * wake in any but a few, and never so many that it gets long.
 */
const RECORDS_PER_TURN = 512
const LOOKS_PER_TURN = 64
/** A program with more calls or threads stays awake: to bring it to sleep and back would take longer than a turn does. */
const RECORDS_MAX = 16
/** Somebody is about to tell of such a call. */
const AT_WORK: ReadonlySet<Call['stage']['kind']> = new Set(['arrived', 'resuming', 'running', 'pausing'])

type Records = Pick<CoreState, 'programs' | 'threads' | 'calls'>

/** The three collections as they begin: they know each other. */
export function emptyRecords(): Records {
  const programs = new Programs()
  return { programs, threads: programs.threads, calls: programs.calls }
}

/** At the end of a turn: while more than so many are awake that may sleep, the longest awake do. */
export function putToSleep({ programs }: Readonly<Records>, awakeMax: number): void {
  // The records of a copy (`allAwake`) are in maps as others.
  if (programs instanceof Programs) programs.putToSleep(awakeMax)
}

/** The same state to read, with a record for each program, thread and call; who sleeps goes on sleeping. */
export function allAwake(core: Readonly<CoreState>): CoreState {
  if (!(core.programs instanceof Programs) || core.programs.asleep === 0) return core
  const wholes = [...core.programs.wholes()]
  const calls = new Map(wholes.flatMap((whole) => whole.calls.map((call) => [call.id, call] as const)))
  return {
    ...core,
    programs: new Map(wholes.map(({ program }) => [program.id, program])),
    threads: new Map(wholes.flatMap(({ threads }) => threads.map((thread) => [thread.id, thread]))),
    calls: new Map([...core.calls.keys()].map((id) => [id, must(calls, id)])),
  }
}

/** Of a call that is kept; it goes on sleeping. */
export function programOf({ calls }: Readonly<Records>, id: CallId): ProgramId | undefined {
  return calls instanceof Calls ? calls.programOf(id) : calls.get(id)?.program
}

/** Where a record would be there may be a name for where it is, so that a walk is in the order of arrival, whoever sleeps. */
abstract class Kept<Id extends string, T extends object, Name extends string> extends Map<Id, T> {
  protected kept(id: Id): T | Name | undefined {
    return super.get(id)
  }

  /** For this file. */
  keep(id: Id, kept: T | Name): void {
    super.set(id, kept as T)
  }

  protected allKept(): Iterable<[Id, T | Name]> {
    return super.entries()
  }

  override* values(): MapIterator<T> {
    for (const [, record] of this.entries()) yield record
  }

  override [Symbol.iterator](): MapIterator<[Id, T]> {
    return this.entries()
  }

  override forEach(tell: (record: T, id: Id, map: Map<Id, T>) => void): void {
    for (const [id, record] of this.entries()) tell(record, id, this)
  }

  override clear(): never {
    throw new InvariantError(0, 'programs are forgotten one by one, each with its threads and calls')
  }
}

/** The name of one asleep is its text. */
class Programs extends Kept<ProgramId, Program, string> {
  readonly threads = new Threads(this)
  readonly calls = new Calls(this)
  /** The longest awake first, and those that might not sleep when they were looked at, the longest ago first. */
  readonly #awake = new Set<ProgramId>()
  readonly #busy = new Set<ProgramId>()
  #asleep = 0
  #threadsAsleep = 0

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

  override entries(): MapIterator<[ProgramId, Program]> {
    return this.#asleep === 0 ? super.entries() : this.#read()
  }

  * #read(): MapIterator<[ProgramId, Program]> {
    for (const [id, kept] of this.allKept()) yield [id, typeof kept === 'string' ? wholeOf(id, kept).program : kept]
  }

  get asleep(): number {
    return this.#asleep
  }

  get threadsAsleep(): number {
    return this.#threadsAsleep
  }

  wake(id: ProgramId): void {
    const text = this.kept(id)
    if (typeof text !== 'string') return
    const { program, threads, calls } = wholeOf(id, text)
    for (const thread of threads) this.threads.keep(thread.id, thread)
    for (const call of calls) this.calls.keep(call.id, call)
    this.#asleep -= 1
    this.#threadsAsleep -= threads.length
    this.set(id, program)
  }

  putToSleep(awakeMax: number): void {
    this.#lookAgain()
    let records = 0
    for (let looks = 0; looks < LOOKS_PER_TURN && records < RECORDS_PER_TURN && this.#awake.size > awakeMax; looks += 1) {
      const id = takeFirst(this.#awake)
      if (id === undefined) return
      const program = must(this, id)
      if (this.#maySleep(program)) {
        this.#lay(program)
        records += program.threads.length + program.calls.length
      } else this.#busy.add(id)
    }
  }

  #lookAgain(): void {
    const id = takeFirst(this.#busy)
    if (id === undefined) return
    if (this.#maySleep(must(this, id))) this.#awake.add(id)
    else this.#busy.add(id)
  }

  /** Its threads must be found by their ids: in old logs some have a `/` of their own. */
  #maySleep({ id: program, threads, calls }: Program): boolean {
    return calls.length <= RECORDS_MAX && threads.length <= RECORDS_MAX && threads.every((id) => {
      const { active } = must(this.threads, id)
      return id.lastIndexOf('/') === program.length && (active === null || !AT_WORK.has(must(this.calls, active).stage.kind))
    })
  }

  #lay(program: Program): void {
    this.keep(program.id, textOf(this.#wholeAwake(program)))
    for (const thread of program.threads) this.threads.drop(thread)
    for (const call of program.calls) this.calls.keep(call, program.id)
    this.#asleep += 1
    this.#threadsAsleep += program.threads.length
  }

  #wholeAwake(program: Program): WholeProgram {
    return { program, threads: program.threads.map((id) => must(this.threads, id)), calls: program.calls.map((id) => must(this.calls, id)) }
  }

  /** Copies of those asleep. */
  * wholes(): Generator<WholeProgram, void> {
    for (const [id, kept] of this.allKept()) yield typeof kept === 'string' ? wholeOf(id, kept) : this.#wholeAwake(kept)
  }

  /** A copy of one asleep; null: it is awake. */
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

/** Records that sleep with their program: it wakes before one of them is set or deleted. */
abstract class Parts<Id extends string, T extends object, Name extends string> extends Kept<Id, T, Name> {
  protected readonly programs: Programs

  constructor(programs: Programs) {
    super()
    this.programs = programs
  }

  override set(id: Id, record: T): this {
    this.get(id)
    return super.set(id, record)
  }

  override delete(id: Id): boolean {
    this.get(id)
    return super.delete(id)
  }

  /** For this file. */
  drop(id: Id): void {
    super.delete(id)
  }
}

/** The name of one asleep is its program's. */
class Calls extends Parts<CallId, Call, ProgramId> {
  override get(id: CallId): Call | undefined {
    const kept: Call | string | undefined = super.get(id)
    if (typeof kept !== 'string') return kept
    this.programs.wake(kept)
    return super.get(id)
  }

  override entries(): MapIterator<[CallId, Call]> {
    return this.programs.asleep === 0 ? super.entries() : this.#read()
  }

  * #read(): MapIterator<[CallId, Call]> {
    const copies = new Map<CallId, Call>()
    for (const [id, kept] of this.allKept()) {
      if (typeof kept === 'string' && !copies.has(id)) for (const call of this.programs.read(kept)?.calls ?? []) copies.set(call.id, call)
      yield [id, typeof kept === 'string' ? must(copies, id) : kept]
      copies.delete(id)
    }
  }

  programOf(id: CallId): ProgramId | undefined {
    const kept = this.kept(id)
    return typeof kept === 'string' ? kept : kept?.program
  }
}

/** One asleep is not in it: its id begins with its program's. Walked by program. */
class Threads extends Parts<ThreadId, Thread, never> {
  override get(id: ThreadId): Thread | undefined {
    const thread = super.get(id)
    if (thread !== undefined) return thread
    this.programs.wake(id.slice(0, Math.max(0, id.lastIndexOf('/'))) as ProgramId)
    return super.get(id)
  }

  override has(id: ThreadId): boolean {
    return this.get(id) !== undefined
  }

  override get size(): number {
    return super.size + this.programs.threadsAsleep
  }

  override* entries(): MapIterator<[ThreadId, Thread]> {
    for (const id of this.programs.keys()) {
      const threads = this.programs.read(id)?.threads ?? must(this.programs, id).threads.map((thread) => must(this, thread))
      for (const thread of threads) yield [thread.id, thread]
    }
  }

  override* keys(): MapIterator<ThreadId> {
    for (const [id] of this.entries()) yield id
  }
}
