/**
 * Owns the laws that only a sequence of facts can break: one commit a call and nothing of it afterwards (1), an attempt
 * only after READY (2), nothing of an attempt that is over (3), a move published only after it was begun and verified
 * (5), nothing new in a program that was cancelled (6), one answer to an interrupt (7), one firing a join (1), reigns that rise (15); facts are
 * numbered without a gap, and time does not go back. Remembers without limit: for tests and simulation, not for servers.
 */
import type { Fact, Logged } from '../fact.ts'
import { law } from './law.ts'

export interface History {
  seq: number
  atUs: number
  reign: number
  readonly over: Map<string, 'committed' | 'cancelled' | 'failed'>
  readonly ready: Set<string>
  readonly attempts: Map<string, number>
  readonly moves: Set<string>
  readonly stopped: Set<string>
  readonly programOf: Map<string, string>
  readonly answered: Set<string>
  readonly joined: Set<string>
}

export const noHistory = (): History => ({
  seq: 0, atUs: 0, reign: 0, over: new Map(), ready: new Set(), attempts: new Map(), moves: new Set(), stopped: new Set(),
  programOf: new Map(), answered: new Set(), joined: new Set(),
})

export function checkHistory(history: History, facts: readonly Logged[]): void {
  for (const { seq, atUs, fact } of facts) {
    law(2, seq === history.seq + 1, () => `fact ${seq} follows ${history.seq}`)
    law(2, atUs >= history.atUs, () => `fact ${seq} is of ${atUs} us, the one before of ${history.atUs}`)
    history.seq = seq
    history.atUs = atUs
    if (fact.kind.startsWith('call.')) checkCallFact(history, fact)
    else checkOther(history, fact)
  }
}

function checkCallFact(history: History, fact: Fact): void {
  const lives = (call: string): void => law(1, !history.over.has(call), () => `${call} is ${history.over.get(call) ?? ''}, and then ${fact.kind}`)
  const speaks = (call: string, attempt: number): void => {
    lives(call)
    law(3, history.attempts.get(call) === attempt, () => `${fact.kind} of attempt ${attempt} of ${call}, which is at ${history.attempts.get(call) ?? 'none'}`)
  }
  switch (fact.kind) {
    case 'call.arrived':
      law(6, !history.stopped.has(fact.program), () => `${fact.call} arrived in ${fact.program}, which is over`)
      law(1, !history.programOf.has(fact.call), () => `${fact.call} arrived twice`)
      history.programOf.set(fact.call, fact.program)
      return
    case 'call.ready':
      lives(fact.call)
      law(6, !history.stopped.has(history.programOf.get(fact.call) ?? ''), () => `${fact.call} is ready in a program that is over`)
      history.ready.add(fact.call)
      return
    case 'call.scheduled':
      lives(fact.call)
      law(2, history.ready.has(fact.call), () => `${fact.call} runs and was not ready`)
      law(3, fact.attempt >= (history.attempts.get(fact.call) ?? 1), () => `${fact.call} runs its attempt ${fact.attempt} again`)
      history.ready.delete(fact.call)
      history.attempts.set(fact.call, fact.attempt)
      return
    case 'call.progressed':
      return speaks(fact.call, fact.attempt)
    case 'call.completed':
      speaks(fact.call, fact.attempt)
      history.over.set(fact.call, 'committed')
      return
    case 'call.cancelled':
    case 'call.failed':
      lives(fact.call)
      history.over.set(fact.call, fact.kind === 'call.failed' ? 'failed' : 'cancelled')
      return
    case 'call.retried':
      lives(fact.call)
      history.ready.delete(fact.call)
      return
    case 'call.replayed':
      law(7, history.over.get(fact.as) === 'committed', () => `${fact.as} was shown again and is not committed`)
      return
    case 'call.attached':
      return lives(fact.as)
    case 'call.measured': case 'call.granted': case 'call.demoted': case 'call.preempted': case 'call.paused': case 'call.detached':
      return lives(fact.call)
    default:
  }
}

function checkOther(history: History, fact: Fact): void {
  switch (fact.kind) {
    case 'reign.begun':
      law(15, fact.reign > history.reign, () => `reign ${fact.reign} follows ${history.reign}`)
      history.reign = fact.reign
      return
    case 'program.cancelled':
    case 'program.failed':
    case 'program.closed':
      history.stopped.add(fact.program)
      return
    case 'program.forgotten':
      // Its id may be used again.
      history.stopped.delete(fact.program)
      for (const join of history.joined) if (join.startsWith(`${fact.program} `)) history.joined.delete(join)
      return
    case 'thread.joined':
      law(1, !history.joined.has(`${fact.program} ${fact.node}`), () => `${fact.node} of ${fact.program} fires twice`)
      history.joined.add(`${fact.program} ${fact.node}`)
      return
    case 'interrupt.started':
      return law(6, !history.stopped.has(fact.program), () => `${fact.interrupt} begins in a program that is over`)
    case 'interrupt.completed':
      law(7, !history.answered.has(fact.interrupt), () => `${fact.interrupt} is answered twice`)
      history.answered.add(fact.interrupt)
      return
    case 'kv.offload.begun':
    case 'kv.onboard.begun':
      law(5, !history.moves.has(fact.move), () => `${fact.move} begins twice`)
      history.moves.add(fact.move)
      return
    case 'kv.moved':
    case 'kv.move.failed':
      law(5, history.moves.delete(fact.move), () => `${fact.move} ends and is not under way`)
      return
    default:
  }
}
