/**
 * The Gittins index of a program's remaining service (`predict/effective-size.ts`), from what programs of its kind needed
 * before (`predict/work.ts`), in levels of a factor two so that the order changes rarely; inside a level the oldest program
 * first. Where sizes are heavy-tailed that is plas, where they are alike fcfs-program. A declared number of steps
 * replaces the curve once a step is done.
 *
 * It starts without data as fcfs-program with a way down: who has received `FAR_MORE` times what programs received on
 * average so far goes down a level, and one more with each doubling. The same holds while no curve can be trusted, at
 * the level of the mean program. Sub-agents stand where their root does.
 *
 * A waiting call keeps the level it came with. So that nobody who waits goes before those who have begun only because
 * something was learned since, levels are counted from what hardly moves: the unit, which is the first size that was ever
 * known, at the level at which all stand before; and the size of a fresh program, which stays until it is off by a factor two.
 *
 * Sizes are of resident service. Work would be a fairer share of the engine, but that of the same program is several times
 * larger where it runs alone than in a full batch: what was learned at one load would be wrong at another.
 */
import { must } from '../../assert.ts'
import type { Work } from '../../learned.ts'
import { rootOf } from '../../graph/lineage.ts'
import { effectiveSize, levelOfSize } from '../../predict/effective-size.ts'
import { knownOf, meanOf, remainingOf, sizeHazards, toldUpTo, toMs } from '../../predict/work.ts'
import type { CoreState, Program } from '../../state.ts'
import type { OrderPolicy } from './order.ts'

const FAR_MORE = 4
/** Where a program of the unit's size stands, and all while nobody knows anything: sizes down to a 65,536th of it are told apart. */
const UNIT_LEVEL = 16

export const gittins: OrderPolicy = {
  name: 'gittins',
  key(core, call) {
    const root = rootOf(core, must(core.programs, call.program))
    return { level: Math.max(0, levelOf(core, root)), tie: root.seq }
  },
  preempts: (ready, running) => ready.level < running.level || (ready.level === running.level && ready.tie < running.tie),
}

function levelOf(core: Readonly<CoreState>, program: Readonly<Program>): number {
  const { servedUs, callsDone } = program.standing
  if (program.steps !== null && callsDone > 0 && callsDone < program.steps) {
    const { lowUs, highUs } = remainingOf(core, program)
    return levelFor(core, toMs(Math.floor((lowUs + highUs) / 2)))
  }
  const known = knownOf(core, program)
  return known === null ? startLevel(core, toMs(servedUs)) : levelBy(core, known.work, toMs(servedUs))
}

const levelFor = (core: Readonly<CoreState>, sizeMs: number): number =>
  UNIT_LEVEL + (core.learned.unitMs === 0 ? 0 : doublings(core.learned.unitMs, sizeMs))

/** How often `to` is twice `from`, towards 0; below 0 where it is smaller. */
const doublings = (from: number, to: number): number =>
  (to >= from ? levelOfSize(Math.floor(to / from)) : -levelOfSize(Math.floor(from / Math.max(1, to))))

/**
 * From the level of a fresh program one down for each time its effective size has doubled since, one up for each time it
 * has halved. Where too few were ever seen the level stays, up to `FAR_MORE` times that size: who is a little larger than
 * the largest known is more likely near its end than at its beginning.
 */
function levelBy(core: Readonly<CoreState>, { service, freshMs }: Readonly<Work>, attainedMs: number): number {
  const hazards = sizeHazards(service)
  const toldMs = toldUpTo(service)
  const fresh = Math.max(1, effectiveSize(hazards, 0))
  const now = Math.max(1, effectiveSize(hazards, Math.min(attainedMs, toldMs)))
  return levelFor(core, freshMs) + doublings(fresh, now) + farMore(attainedMs, toldMs)
}

/** Levels down, one for each doubling, for who has received far more than what is usual or known. */
const farMore = (attainedMs: number, usualMs: number): number => levelOfSize(2 * Math.floor(attainedMs / (FAR_MORE * usualMs)))

function startLevel(core: Readonly<CoreState>, attainedMs: number): number {
  const usualMs = Math.max(1, meanOf(core.learned.work.service))
  return levelFor(core, usualMs) + farMore(attainedMs, usualMs)
}
