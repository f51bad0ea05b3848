/**
 * The order of whoever knows the future: shortest remaining program first, by the engine time in full batches of all that
 * its trace still holds. A strong reference, since nobody can know it, and no bound: where programs fork, wait or lack memory
 * another order may do better.
 */
import type { OrderPolicy } from '../src/core/policy/order/order.ts'
import { must } from '../src/core/assert.ts'
import { rawOf, type ProgramId } from '../src/core/ids.ts'
import type { Us } from '../src/core/units.ts'
import { callWorkUs } from './orders-plan.ts'
import type { DrawnProgram } from './virtual-agent.ts'

export function clairvoyant(programs: readonly DrawnProgram[]): OrderPolicy {
  const byName = new Map(programs.map(({ name, of }) => [name, new Map(of.nodes.map((node, place) => [`${name}.${place}`, callWorkUs(node)]))]))
  const totals = new Map([...byName].map(([name, calls]) => [name, [...calls.values()].reduce((sum, us) => sum + us, 0)]))
  return {
    name: 'fcfs',
    key: (core, call) => {
      const name = rawOf(call.program)
      const done = doneUs(byName.get(name), must(core.programs, call.program).calls, (id) => core.calls.get(id)?.stage.kind === 'committed')
      return { level: 0, tie: Math.round((totals.get(name) ?? 0) - done) }
    },
    preempts: (ready, running) => ready.tie < running.tie,
  }
}

const doneUs = <Id extends string>(works: ReadonlyMap<string, Us> | undefined, calls: readonly Id[], isDone: (id: Id) => boolean): Us =>
  calls.reduce((sum, id) => sum + (isDone(id) ? works?.get(id) ?? 0 : 0), 0)
