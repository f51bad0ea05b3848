/**
 * Owns the shape of what history leaves behind: what orders read of a program and of a call, and what predictors know of
 * waits and of programs. Plain data, part of the state; written by `standing.ts` and `predict/learn.ts`.
 */
import type { InterruptId } from './ids.ts'
import type { Curve } from './predict/curve.ts'
import type { Trust } from './predict/trust.ts'
import type { Us } from './units.ts'

/** Service of calls that are over, summed; and along the longest path of them. Replaced, never written into: calls share it. */
export interface Past {
  readonly doneUs: Us
  readonly pathUs: Us
}

/** What orders read of a program; that of a sub-agent is kept at its root (`standing.ts`). */
export interface Standing {
  past: Past
  /** Useful and retried service in all, running calls included. */
  servedUs: Us
  /** Calls that are over. */
  callsDone: number
  /** Time during which at least one of its calls was in a queue, up to `waitingSinceUs`. */
  waitedUs: Us
  /** Calls in a queue now, and since when there has been one. */
  waiting: number
  waitingSinceUs: Us
}

/** What orders read of a call; replaced, never written into. */
export interface CallStanding {
  /** Its root's when it first became ready; null before. */
  readonly inherited: Past | null
  /** In queues, up to its present wait. */
  readonly waitedUs: Us
  /** Its own service when it last was promoted; null: it never was. */
  readonly promotedAtUs: Us | null
}

/** Waits for one class of tool. */
export interface Waits {
  readonly curve: Curve
  /** Those that last, the longest first. */
  readonly open: Set<InterruptId>
  readonly trust: Trust
}

/** How large things were, and in which bucket those stand that are not over. */
export interface Sizes extends Curve {
  readonly open: number[]
}

/** What programs needed: service in milliseconds, and calls. */
export interface Work {
  readonly service: Sizes
  readonly calls: Sizes
  readonly trust: Trust
  /** Effective size of a fresh program in milliseconds, for levels: it stays until it is off by a factor two; 0: not known yet. */
  freshMs: number
}

/** Over all tenants. */
export interface LearnedOfAll {
  readonly waitsOfKind: Map<'tool' | 'human' | 'open', Curve>
  readonly waitsOfClass: Map<string, Curve>
  readonly work: Work
  /** The first `freshMs` of them all: the unit of sizes in levels, from then on; 0 before. */
  unitMs: number
}

export interface LearnedOfTenant {
  /** By tool class, at most `toolClassesMax`. */
  readonly waits: Map<string, Waits>
  /** All its programs, and those of each kind, at most `kindsPerTenantMax`. */
  readonly work: Work
  readonly kinds: Map<string, Work>
}
