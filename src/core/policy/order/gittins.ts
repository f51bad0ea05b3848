/**
 * The Gittins index of a program's remaining service (`predict/effective-size.ts`), from what programs of its kind needed
 * before (`predict/work.ts`), in levels of a factor two so that the order changes rarely; inside a level the oldest program
 * first. Where sizes are heavy-tailed that is plas, where they are alike fcfs-program. A declared number of steps
 * replaces the curve once a step is done.
 *
 * It starts without data as fcfs-program with a way down: who has received `FAR_MORE` times what programs received on
 * average so far goes down a level, and one more with each doubling. The same holds while no curve can be trusted, at
 * the level of the mean program. Sub-agents stand where their root does. A waiting call keeps the level it came with.
 */
import { must } from '../../assert.ts'
import { rootOf } from '../../lineage.ts'
import { effectiveSize, levelOfSize } from '../../predict/effective-size.ts'
import { endedOf } from '../../predict/curve.ts'
import { knownOf, meanOf, PROGRAMS_ENOUGH, remainingOf, sizeHazards, toMs } from '../../predict/work.ts'
import type { CoreState, Program } from '../../state.ts'
import type { OrderPolicy } from './order.ts'

const FAR_MORE = 8

export const gittins: OrderPolicy = {
  name: 'gittins',
  key(core, call) {
    const root = rootOf(core, must(core.programs, call.program))
    return { level: levelOf(core, root), tie: root.seq }
  },
  preempts: (ready, running) => ready.level < running.level || (ready.level === running.level && ready.tie < running.tie),
}

function levelOf(core: Readonly<CoreState>, program: Readonly<Program>): number {
  const { servedUs, callsDone } = program.standing
  if (program.steps !== null && callsDone > 0 && callsDone < program.steps) {
    const { lowUs, highUs } = remainingOf(core, program)
    return levelOfSize(toMs(Math.floor((lowUs + highUs) / 2)))
  }
  const known = knownOf(core, program)
  return known === null ? startLevel(core, toMs(servedUs)) : levelOfSize(effectiveSize(sizeHazards(known.work.service), toMs(servedUs)))
}

function startLevel(core: Readonly<CoreState>, attainedMs: number): number {
  const { service } = core.learned.work
  const usualMs = Math.max(1, meanOf(service))
  const base = endedOf(service) < PROGRAMS_ENOUGH ? 0 : levelOfSize(usualMs)
  return base + levelOfSize(2 * Math.floor(attainedMs / (FAR_MORE * usualMs)))
}
