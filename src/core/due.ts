/** Owns what each timer means when it comes due. A timer names its subject, so it survives a restart as plain data. */
import { age } from './queue/aging.ts'
import { closeProgram } from './program.ts'
import { giveUpDetached, giveUpParents } from './call.ts'
import type { Deciding } from './deciding.ts'
import { endDrainTime } from './drain.ts'
import type { CallId, EngineId, InterruptId, ProgramId, StateId } from './ids.ts'
import type { Due } from './input.ts'
import { considerAgain } from './queue/slack.ts'
import { expire } from './interrupt.ts'
import { decideIdle, retire } from './kv/kv.ts'
import { promote } from './queue/promote.ts'

export function due(d: Deciding, input: Due): void {
  const atUs = d.core.timers.get(input.timer)
  // Cleared or set anew since: nothing is due.
  if (atUs === undefined || atUs > d.nowUs) return
  d.emit({ kind: 'timer.cleared', timer: input.timer })
  const cut = input.timer.indexOf(':')
  const subject = input.timer.slice(cut + 1)
  switch (input.timer.slice(0, cut)) {
    case 'dispatch': return void d.touched.models.add(subject)
    case 'reconsider': return decideIdle(d, subject as StateId)
    case 'retire': return retire(d, subject as StateId)
    case 'expire': return expire(d, subject as InterruptId)
    case 'promote': return promote(d, subject as CallId)
    case 'age': return age(d)
    case 'slack': return considerAgain(d, subject as CallId)
    case 'close': return closeProgram(d, subject as ProgramId)
    case 'parents': return giveUpParents(d, subject as CallId)
    case 'drain': return endDrainTime(d, subject as EngineId)
    case 'detached': return giveUpDetached(d, subject as CallId)
    default: return
  }
}
