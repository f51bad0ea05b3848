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
import { knownOf, meanOf, PROGRAMS_ENOUGH, remainingOf, sizeHazards, toldUpTo, toMs } from '../../predict/work.ts'
import type { Sizes } from '../../learned.ts'
import type { CoreState, Program } from '../../state.ts'
import type { OrderPolicy } from './order.ts'

const FAR_MORE = 4

/**
 * Where all stand while nobody knows anything: as if they needed a minute. A waiting call keeps its level, so that of
 * who came in that time must not be better than what is known soon after of those that have begun, or all that wait would
 * go before them.
 */
const UNKNOWN_LEVEL = 16

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
  return known === null ? startLevel(core, toMs(servedUs)) : levelBy(known.work.service, toMs(servedUs))
}

/**
 * From the level of a fresh program one down for each time its effective size has doubled since, one up for each time it
 * has halved. Where too few were ever seen the level stays, up to `FAR_MORE` times that size: who is a little larger than
 * the largest known is more likely near its end than at its beginning.
 */
function levelBy(sizes: Readonly<Sizes>, attainedMs: number): number {
  const hazards = sizeHazards(sizes)
  const toldMs = toldUpTo(sizes)
  const fresh = Math.max(1, effectiveSize(hazards, 0))
  const now = Math.max(1, effectiveSize(hazards, Math.min(attainedMs, toldMs)))
  const steps = now >= fresh ? levelOfSize(Math.floor(now / fresh)) : -levelOfSize(Math.floor(fresh / now))
  return Math.max(0, levelOfSize(fresh) + steps) + farMore(attainedMs, toldMs)
}

/** Levels down, one for each doubling, for who has received far more than what is usual or known. */
const farMore = (attainedMs: number, usualMs: number): number => levelOfSize(2 * Math.floor(attainedMs / (FAR_MORE * usualMs)))

function startLevel(core: Readonly<CoreState>, attainedMs: number): number {
  const { service } = core.learned.work
  const usualMs = Math.max(1, meanOf(service))
  const base = endedOf(service) < PROGRAMS_ENOUGH ? UNKNOWN_LEVEL : levelOfSize(usualMs)
  return base + farMore(attainedMs, usualMs)
}
