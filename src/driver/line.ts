/** Owns the line of a model as people see it: its ready calls, the next to be served first, and how many stand at which level. Linear in the line; for views only. */
import { programOf } from '../core/asleep/asleep.ts'
import type { CallId, ProgramId } from '../core/ids.ts'
import { candidates } from '../core/queue/queue.ts'
import { standingAt } from '../core/queue/tenants.ts'
import type { CoreState } from '../core/state.ts'
import type { Us } from '../core/units.ts'

export function lineOf(core: Readonly<CoreState>, model: string): readonly CallId[] {
  const queue = core.queues.get(model)
  return queue === undefined ? [] : [...candidates(queue)]
}

/** Of which programs calls are; nobody is woken for it. */
export const programsOf = (core: Readonly<CoreState>, calls: readonly CallId[]): ProgramId[] => calls.flatMap((id) => programOf(core, id) ?? [])

/** Ready calls at a level of the order, and since when the longest of them waits. */
interface Level { readonly model: string; readonly level: number; readonly calls: number; readonly sinceUs: Us }

/** Read in the queues alone: no call is looked at. */
export function levelsOf(core: Readonly<CoreState>): readonly Level[] {
  return [...core.queues].flatMap(([model, { bands }]) => {
    const levels = new Map<number, Level>()
    for (const { calls } of bands.flatMap(({ tenants }) => [...tenants.shares.values()])) {
      for (const place of calls.ids.keys()) {
        const { level, sinceUs } = standingAt(calls, place)
        const at = levels.get(level) ?? { model, level, calls: 0, sinceUs }
        levels.set(level, { ...at, calls: at.calls + 1, sinceUs: Math.min(at.sinceUs, sinceUs) })
      }
    }
    return [...levels.values()]
  })
}
