/**
 * Owns a program, its threads and its calls as one text, and back. Each record is what differs from the one before it, the
 * first from one that has just begun; what a program lists are the ids of the records that follow.
 */
import { difference, differing, kindOf, type Kind } from './difference.ts'
import { freshCall, freshProgram, freshThread } from '../fresh.ts'
import type { CallId, ProgramId, TenantId, ThreadId } from '../ids.ts'
import { NO_STANDING } from '../standing.ts'
import { EPOCH_FIRST, type Call, type Program, type Thread } from '../state.ts'

export interface WholeProgram { readonly program: Program; readonly threads: readonly Thread[]; readonly calls: readonly Call[] }

/** The likeliest: it stands in line since it arrived, and nothing has run. */
const anyProgram = (id: ProgramId): Program => freshProgram({
  id, tenant: '' as TenantId, session: null, declared: true, kind: '', seq: 0, arrivedUs: 0,
  identity: { source: 'explicit', confidence: 100 }, priorityClass: 'default', deadlineUs: null, steps: null,
})
const anyThread = ({ id }: Program): Thread => freshThread({ id: '' as ThreadId, program: id, forkedFrom: null, active: null, state: null })
const anyCall = ({ id, tenant, seq, arrivedUs, standing }: Program): Call => ({
  ...freshCall(
    { model: '', epoch: EPOCH_FIRST, band: 'default', digest: '', seed: 0, maxTokens: 0, exactResume: true, parents: [], node: null, answers: null, final: false, promptTokens: 0 },
    { id: '' as CallId, program: id, thread: '' as ThreadId, payer: tenant, seq, arrivedUs },
  ),
  stage: { kind: 'ready', sinceUs: arrivedUs }, measured: true, standing: { ...NO_STANDING, inherited: standing.past },
})

const NOBODY = anyProgram('' as ProgramId)
const PROGRAM = kindOf(NOBODY)
const THREAD = kindOf(anyThread(NOBODY))
const CALL = kindOf(anyCall(NOBODY))

/** Stands for the program's id, which begins the ids of its threads; JSON never has it as it is. */
const ITS_ID = '\u0000'

export function textOf({ program, threads, calls }: WholeProgram): string {
  const told = new Map<string, number>()
  const alone = { ...program, threads: NOBODY.threads, calls: NOBODY.calls }
  const text = JSON.stringify([
    ...differencesOf(PROGRAM, [alone], anyProgram(program.id), told), differencesOf(THREAD, threads, anyThread(program), told), differencesOf(CALL, calls, anyCall(program), told),
  ])
  // In one piece: what is replaced leaves its pieces in memory.
  return text.split(inJson(program.id)).join(ITS_ID)
}

const inJson = (id: ProgramId): string => JSON.stringify(id).slice(1, -1)

function differencesOf(kind: Kind, records: readonly object[], first: object, told: Map<string, number>): unknown[][] {
  let before = kind.values(first)
  return records.map((record) => {
    const values = kind.values(record)
    const different = difference(values, before, told)
    before = values
    return different
  })
}

export function wholeOf(id: ProgramId, text: string): WholeProgram {
  const told: string[] = []
  const [alone, threads, calls] = JSON.parse(text.split(ITS_ID).join(inJson(id))) as [unknown[], unknown[][], unknown[][]]
  const [program] = recordsOf(PROGRAM, [alone], anyProgram(id), told) as [Program]
  const whole = { program, threads: recordsOf(THREAD, threads, anyThread(program), told), calls: recordsOf(CALL, calls, anyCall(program), told) }
  program.threads = whole.threads.map((thread) => thread.id)
  program.calls = whole.calls.map((call) => call.id)
  return whole
}

function recordsOf<T extends object>(kind: Kind, differences: readonly (readonly unknown[])[], first: T, told: string[]): T[] {
  let before: readonly unknown[] = kind.values(first)
  return differences.map((different) => kind.record(before = differing(before, different, told)) as T)
}
