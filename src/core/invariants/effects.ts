/**
 * Owns the law of effects (7): a tool call that was shown is known, belongs to the one call that made it, and is answered
 * once; a thread waits for the tools of its last commit and for no others; and nothing that was committed runs again.
 */
import { must } from '../assert.ts'
import type { CoreState, Interrupt } from '../state.ts'
import { law } from './law.ts'

export function checkEffects(core: Readonly<CoreState>): void {
  for (const interrupt of core.interrupts.values()) checkInterrupt(core, interrupt)
  for (const thread of core.threads.values()) {
    if (thread.interrupt === null) continue
    const stage = core.interrupts.get(thread.interrupt)?.stage.kind
    law(7, stage === 'waiting', () => `${thread.id} waits for ${thread.interrupt ?? ''}, which is ${stage ?? 'not known'}`)
  }
  for (const [key, { call, answeredBy }] of core.toolCalls) {
    law(7, core.calls.get(call)?.stage.kind === 'committed', () => `the tool call ${key} was shown by ${call}, which is not committed`)
    law(7, answeredBy === null || answeredBy !== call, () => `the tool call ${key} answers itself`)
  }
}

function checkInterrupt(core: Readonly<CoreState>, interrupt: Interrupt): void {
  const call = must(core.calls, interrupt.call)
  law(7, call.stage.kind === 'committed', () => `${interrupt.id} waits for the tools of ${call.id}, which is ${call.stage.kind}`)
  law(7, call.thread === interrupt.thread && call.program === interrupt.program, () => `${interrupt.id} waits in another thread than its call`)
  const committed = interrupt.commits.map(({ toolCall }) => toolCall)
  law(7, interrupt.effectKey === call.id, () => `${interrupt.id} has the effect key ${interrupt.effectKey}, which is not its call`)
  law(7, new Set(committed).size === committed.length && committed.every((id) => interrupt.toolCallIds.includes(id)), () => `${interrupt.id} has committed ${committed.join(' ')}`)
  const { stage } = interrupt
  if (stage.kind === 'waiting') {
    law(7, must(core.threads, interrupt.thread).interrupt === interrupt.id, () => `${interrupt.id} waits and its thread does not`)
    law(3, interrupt.epoch === must(core.programs, interrupt.program).epoch, () => `${interrupt.id} waits in an epoch that is over`)
  }
  if (stage.kind !== 'completed') return
  const by = core.calls.get(stage.by)
  law(7, by?.answers === interrupt.id && by.thread === interrupt.thread, () => `${interrupt.id} was answered by ${stage.by}, which does not say so`)
}
