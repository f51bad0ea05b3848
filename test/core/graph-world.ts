/** A world in which nothing happens by itself, with words for graphs: the test says what comes in. */
import type { Fact, Logged } from '../../src/core/fact.ts'
import { engineId, nodeId, programId, tenantId, threadId, type CallId } from '../../src/core/ids.ts'
import type { Finished, NodeReport, OutcomeReport, ReportGraph, Submit } from '../../src/core/input.ts'
import type { JoinRule } from '../../src/core/graph/graph-state.ts'
import { emptyLedger, type State, type Thread } from '../../src/core/state.ts'
import { CLAIMS, World } from './world.ts'

export const T = tenantId('t')
export const ALL: JoinRule = { need: { kind: 'all' }, siblings: 'cancel' }
export const ANY: JoinRule = { need: { kind: 'any' }, siblings: 'cancel' }
export const atLeast = (count: number, siblings: JoinRule['siblings'] = 'cancel'): JoinRule => ({ need: { kind: 'partial', atLeast: count }, siblings })

export const node = (name: string, parents: readonly string[] = [], more: Partial<NodeReport> = {}): NodeReport => ({
  node: name, kind: 'LLM', thread: null, parents: parents.map((parent) => ({ node: parent, edge: 'data' as const })), join: null, serviceUs: null, ...more,
})
export const tool = (name: string, parents: readonly string[] = [], more: Partial<NodeReport> = {}): NodeReport => node(name, parents, { kind: 'TOOL', ...more })
export const join = (name: string, rule: JoinRule, parents: readonly string[], more: Partial<NodeReport> = {}): NodeReport =>
  node(name, parents, { kind: 'JOIN', join: rule, ...more })

export const kinds = (facts: readonly Logged[]): Fact['kind'][] => facts.map(({ fact }) => fact.kind)
export const only = <K extends Fact['kind']>(facts: readonly Logged[], kind: K): Extract<Fact, { kind: K }>[] =>
  facts.map(({ fact }) => fact).filter((fact): fact is Extract<Fact, { kind: K }> => fact.kind === kind)

export class GraphWorld extends World {
  /** Declares `p`. */
  begin(more: { deadlineUs?: number; session?: string } = {}): this {
    this.feed({ kind: 'declareProgram', tenant: T, program: 'p', session: null, agent: 'a', priorityClass: 'default', deadlineUs: null, parent: null, steps: null, ...more })
    return this
  }

  report(more: Partial<ReportGraph>): Logged[] {
    return this.feed({ kind: 'reportGraph', tenant: T, program: 'p', epoch: null, parent: null, forks: [], nodes: [], outcomes: [], ...more })
  }

  nodes(...nodes: readonly NodeReport[]): Logged[] {
    return this.report({ nodes })
  }

  outcome(name: string, outcome: OutcomeReport['outcome'] = 'completed'): Logged[] {
    return this.report({ outcomes: [{ node: name, outcome, why: 'so it went' }] })
  }

  /** The code of what was refused; null where the report was taken. */
  refusal(facts: readonly Logged[]): string | null {
    return only(facts, 'program.refused')[0]?.code ?? only(facts, 'call.refused')[0]?.code ?? null
  }

  /** A call that is the node `name`, in a thread of its own unless said otherwise. */
  call(name: string, parents: readonly string[] = [], thread: string | null = name, more: Partial<Submit> = {}): CallId {
    return this.submit({ claims: { ...CLAIMS, program: 'p', thread, node: name, parents, identity: { source: 'explicit', confidence: 100 } }, ...more })
  }

  /** The facts of what `act` feeds. */
  feedOf(act: () => unknown): Logged[] {
    const from = this.log.length
    act()
    return this.log.slice(from)
  }

  measure(call: CallId, record: CallId | null = null, tokens = 0): Logged[] {
    return this.feed({ kind: 'measured', call, promptTokens: 60, matched: record === null ? null : { record, tokens }, renderingWon: null })
  }

  /** It fed what it was told and 10 tokens more. */
  end(call: CallId, more: Partial<Finished> = {}): Logged[] {
    const { epoch, attempt, preemptions: run } = this.core.calls.get(call) ?? { epoch: 1, attempt: 1, preemptions: 0 }
    const service = { ...emptyLedger(), useful: { residentUs: 500, workUs: 400 } }
    return this.feed({
      kind: 'finished', engine: engineId('e0'), reign: this.core.reign, call, attempt, run, epoch, finish: 'stop',
      report: { service, tailPrefilled: 60, tailDecoded: 9, outputTokens: 10, recomputedTokens: 0 },
      parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 },
      spans: [{ tokens: 60, origin: 'prefilled', digest: `${call}a` }, { tokens: 9, origin: 'decoded', digest: `${call}b` }],
      toolCalls: [], toolEffect: 'read', resume: 'none', ...more,
    })
  }

  fail(call: CallId): Logged[] {
    const { epoch, attempt, preemptions: run } = this.core.calls.get(call) ?? { epoch: 1, attempt: 1, preemptions: 0 }
    return this.feed({ kind: 'attemptFailed', engine: engineId('e0'), reign: this.core.reign, call, attempt, run, epoch, retryable: false, why: 'broken' })
  }

  /** From arrival to commit. */
  done(name: string, parents: readonly string[] = [], thread: string | null = name): CallId {
    const call = this.call(name, parents, thread)
    this.measure(call)
    this.end(call)
    return call
  }

  stage(name: string): string {
    return this.core.graphs.get(programId(T, 'p'))?.nodes.get(nodeId(name))?.stage.kind ?? 'unknown'
  }

  callStage(call: CallId): string {
    return this.core.calls.get(call)?.stage.kind ?? 'unknown'
  }

  thread(name: string): Thread {
    return this.core.threads.get(threadId(programId(T, 'p'), name)) as Thread
  }

  stateOf(name: string): State | null {
    const { state } = this.thread(name)
    return state === null ? null : this.core.states.get(state) as State
  }
}
