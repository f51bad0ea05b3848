/**
 * Owns what predictors learn from facts; for `apply` only, and from nothing but facts. A predictor that drifts forgets half
 * of what it knows each time it is wrong again, down to a few observations: what comes now is soon all it knows.
 */
import { must } from '../assert.ts'
import type { Sizes, Work } from '../learned.ts'
import { rootOf } from '../graph/lineage.ts'
import type { CoreState, Interrupt, Program, Tenant } from '../state.ts'
import type { Us } from '../units.ts'
import { endedOf, halve, remember, seenOf, takeBack, type Curve } from './curve.ts'
import { effectiveSize } from './effective-size.ts'
import { isDrifting, isInside, judge, type Interval, type Trust } from './trust.ts'
import { emptyWaitCurve, emptyWaits, waitBucketOf, waitKindOf, WAITS_REMEMBERED } from './wait.ts'
import { emptyWork, PROGRAMS_ENOUGH, sizeBucketOf, sizeHazards, toMs, worksOf } from './work.ts'

/** Ended programs that are remembered, or twice as many as are open where that is more: who ended must not be outweighed. */
const PROGRAMS_REMEMBERED = 512
/** A drifting curve keeps this much. */
const KEPT_IN_DRIFT = 16

/** `us`: how long it lasted, or had lasted when it was cut off; then only an interval it had outlived says anything. */
function prove(trust: Trust, curve: Curve, expected: Interval | null, us: Us, how: 'ended' | 'cut'): void {
  if (expected === null || (how === 'cut' && us <= expected.highUs)) return
  const right = isInside(expected, us)
  judge(trust, right)
  if (!right && isDrifting(trust) && seenOf(curve) > KEPT_IN_DRIFT) halve(curve)
}

// ---------------------------------------------------------------- waits

export function learnWaitBegun(core: CoreState, tenant: Tenant, { id, toolClass }: Interrupt): void {
  let waits = tenant.learned.waits.get(toolClass)
  if (waits === undefined) tenant.learned.waits.set(toolClass, waits = emptyWaits())
  waits.open.add(id)
  if (!core.learned.waitsOfClass.has(toolClass)) core.learned.waitsOfClass.set(toolClass, emptyWaitCurve())
}

/** It ended after `waitUs`, or was cut off then. */
export function learnWait(core: CoreState, tenant: Tenant, interrupt: Interrupt, waitUs: Us, how: 'ended' | 'cut'): void {
  const waits = must(tenant.learned.waits, interrupt.toolClass)
  waits.open.delete(interrupt.id)
  const kind = waitKindOf(interrupt)
  let ofKind = core.learned.waitsOfKind.get(kind)
  if (ofKind === undefined) core.learned.waitsOfKind.set(kind, ofKind = emptyWaitCurve())
  for (const curve of [waits.curve, must(core.learned.waitsOfClass, interrupt.toolClass), ofKind]) {
    remember(curve, how, waitBucketOf(waitUs), WAITS_REMEMBERED)
  }
  prove(waits.trust, waits.curve, interrupt.expected, waitUs, how)
}

// ---------------------------------------------------------------- programs

export function learnProgramBegun(core: CoreState, program: Program): void {
  const { kinds } = must(core.tenants, program.tenant).learned
  if (!kinds.has(program.kind)) kinds.set(program.kind, emptyWork())
  for (const work of works(core, program)) for (const sizes of [work.service, work.calls]) count(sizes, 0, 1)
}

/** To the program and to its root: service, and calls that are over. */
export function learnService(core: CoreState, program: Program, grownUs: Us, calls: number): void {
  serve(core, program, grownUs, calls)
  if (program.parent !== null) serve(core, must(core.programs, rootOf(core, program).id), grownUs, calls)
}

function serve(core: CoreState, program: Program, grownUs: Us, calls: number): void {
  const { standing } = program
  const { servedUs, callsDone } = standing
  standing.servedUs += grownUs
  standing.callsDone += calls
  if (program.stage.kind !== 'open') return
  for (const work of works(core, program)) {
    move(work.service, toMs(servedUs), toMs(standing.servedUs))
    if (calls > 0) move(work.calls, callsDone, standing.callsDone)
  }
}

/** It was open until now; it ended, or was cut off: cancelled, or failed. */
export function learnProgram(core: CoreState, program: Program, how: 'ended' | 'cut'): void {
  const { servedUs, callsDone } = program.standing
  for (const work of works(core, program)) {
    leave(work.service, toMs(servedUs), how)
    leave(work.calls, callsDone, how)
    takeOver(work)
  }
  if (core.learned.unitMs === 0) core.learned.unitMs = core.learned.work.freshMs
  const { work } = worksOf(core, program)[0] ?? {}
  if (work !== undefined) prove(work.trust, work.service, program.expected, servedUs, how)
}

/** A waiting call keeps the level it came with, so what levels are reckoned from must not waver with every program that ends. */
function takeOver(work: Work): void {
  if (endedOf(work.service) < PROGRAMS_ENOUGH) return
  const sizeMs = Math.max(1, effectiveSize(sizeHazards(work.service), 0))
  if (sizeMs >= 2 * work.freshMs || 2 * sizeMs <= work.freshMs) work.freshMs = sizeMs
}

/** An end that was provisional was none. */
export function learnReopened(core: CoreState, program: Program): void {
  const { stage, standing } = program
  if (stage.kind !== 'ended') return
  for (const { service, calls } of works(core, program)) {
    takeBack(service, sizeBucketOf(toMs(stage.servedUs), service.ended.length))
    takeBack(calls, sizeBucketOf(stage.callsDone, calls.ended.length))
    count(service, toMs(standing.servedUs), 1)
    count(calls, standing.callsDone, 1)
  }
}

/** Of its kind, of its tenant, of all. */
function works(core: CoreState, { tenant, kind }: Program): Work[] {
  const { learned } = must(core.tenants, tenant)
  return [must(learned.kinds, kind), learned.work, core.learned.work]
}

function count(sizes: Sizes, size: number, by: 1 | -1): void {
  const bucket = sizeBucketOf(size, sizes.open.length)
  sizes.open[bucket] = (sizes.open[bucket] ?? 0) + by
}

function move(sizes: Sizes, before: number, after: number): void {
  if (sizeBucketOf(before, sizes.open.length) === sizeBucketOf(after, sizes.open.length)) return
  count(sizes, before, -1)
  count(sizes, after, 1)
}

function leave(sizes: Sizes, size: number, how: 'ended' | 'cut'): void {
  count(sizes, size, -1)
  const open = sizes.open.reduce((sum, one) => sum + one, 0)
  remember(sizes, how, sizeBucketOf(size, sizes.open.length), Math.max(PROGRAMS_REMEMBERED, 2 * open))
}
