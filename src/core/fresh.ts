/** Owns what a program, a thread and a call are when they begin: all that is not told of them is at its start. */
import { NO_LEDGER } from './account.ts'
import { newStanding, NO_STANDING } from './standing.ts'
import { EPOCH_FIRST, type Call, type Program, type Thread } from './state.ts'

const NONE: readonly never[] = []

type ToldOfProgram = Pick<Program,
  'id' | 'tenant' | 'session' | 'declared' | 'kind' | 'seq' | 'arrivedUs' | 'identity' | 'priorityClass' | 'deadlineUs' | 'steps'>

export const freshProgram = (told: ToldOfProgram): Program => ({
  id: told.id, tenant: told.tenant, session: told.session, declared: told.declared, kind: told.kind, seq: told.seq, arrivedUs: told.arrivedUs,
  lastUs: told.arrivedUs, identity: told.identity, priorityClass: told.priorityClass, deadlineUs: told.deadlineUs, parent: null, children: NONE,
  steps: told.steps, epoch: EPOCH_FIRST, stage: { kind: 'open' }, threads: NONE, calls: NONE, openCalls: 0, ledger: NO_LEDGER,
  standing: newStanding(), final: false, expected: null,
})

type ToldOfThread = Pick<Thread, 'id' | 'program' | 'forkedFrom' | 'active' | 'state'>

export const freshThread = ({ id, program, forkedFrom, active, state }: ToldOfThread): Thread =>
  ({ id, program, forkedFrom, cancelled: false, active, waiting: NONE, last: null, interrupt: null, state })

type ToldOfCall = Pick<Call,
  'model' | 'epoch' | 'band' | 'digest' | 'seed' | 'maxTokens' | 'exactResume' | 'parents' | 'node' | 'answers' | 'final' | 'promptTokens'>
type PlaceOfCall = Pick<Call, 'id' | 'program' | 'thread' | 'payer' | 'seq' | 'arrivedUs'>

/** Empty lists and sums are those that others have already: a call that waits is little more than its fields. */
export const freshCall = (told: ToldOfCall, { id, program, thread, payer, seq, arrivedUs }: PlaceOfCall): Call => ({
  id, program, thread, model: told.model, epoch: told.epoch, seq, arrivedUs, band: told.band, payer, digest: told.digest, seed: told.seed,
  maxTokens: told.maxTokens, exactResume: told.exactResume, parents: told.parents.length === 0 ? NONE : told.parents, node: told.node,
  answers: told.answers, final: told.final, attempt: 1, stage: { kind: 'arrived' }, promptTokens: told.promptTokens, measured: false,
  reusable: null, outputTokens: 0, recomputedTokens: 0, prepaidUs: 0, attemptService: NO_LEDGER, ledger: NO_LEDGER, startedUs: null,
  recomputeDue: 0, recomputeDone: 0, preemptions: 0, level: 0, tie: seq, toolCallIds: NONE, standing: NO_STANDING,
})
