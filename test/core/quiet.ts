/** A world in which nothing happens by itself, for tests that say what comes in; and what they look for in the facts. */
import { engineId, tenantId, type CallId } from '../../src/core/ids.ts'
import type { Fact, Logged } from '../../src/core/fact.ts'
import type { AttemptReport, Claims, Finished } from '../../src/core/input.ts'
import { emptyLedger } from '../../src/core/state.ts'
import { CLAIMS, World } from './world.ts'

export const E0 = engineId('e0')
export const REPORT: AttemptReport = { service: { ...emptyLedger(), useful: { residentUs: 500, workUs: 400 } }, tailPrefilled: 60, tailDecoded: 9, outputTokens: 10, recomputedTokens: 0 }

export class Quiet extends World {
  readonly tenant = tenantId('t')

  claims(program: string | null): Claims {
    return { ...CLAIMS, program, identity: { source: 'explicit', confidence: 100 } }
  }

  measure(call: CallId, promptTokens = 60): Logged[] {
    return this.feed({ kind: 'measured', call, promptTokens, matched: null, renderingWon: null })
  }

  end(call: CallId, more: Partial<Finished> = {}): Logged[] {
    const { epoch, attempt, preemptions: run, stage } = this.core.calls.get(call) ?? { epoch: 1, attempt: 1, preemptions: 0, stage: null }
    return this.feed({
      kind: 'finished', engine: stage?.kind === 'running' ? stage.engine : E0, reign: this.core.reign, call, attempt, run, epoch, finish: 'stop', report: REPORT,
      parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 }, spans: [{ tokens: 60, origin: 'prefilled', digest: 'a' }, { tokens: 9, origin: 'decoded', digest: 'b' }],
      toolCalls: [], toolEffect: 'read', resume: 'none', ...more,
    })
  }

  endWithTool(call: CallId, name = 'search'): Logged[] {
    return this.end(call, { finish: 'tool_calls', toolCalls: [{ id: `tool-of-${call}`, name }] })
  }

  named(program: string, results: string[] = [], more: Partial<Parameters<World['submit']>[0]> = {}): CallId {
    return this.submit({ claims: { ...CLAIMS, program, toolResults: results, identity: { source: 'explicit', confidence: 100 } }, ...more })
  }

  /** A program whose State waits for a tool. */
  waiting(program: string): CallId {
    const call = this.named(program)
    this.measure(call)
    this.endWithTool(call)
    return call
  }
}

export const kinds = (facts: readonly Logged[]): Fact['kind'][] => facts.map(({ fact }) => fact.kind)
export const only = <K extends Fact['kind']>(facts: readonly Logged[], kind: K): Extract<Fact, { kind: K }>[] =>
  facts.map(({ fact }) => fact).filter((fact): fact is Extract<Fact, { kind: K }> => fact.kind === kind)
