/** Owns what a bench is and what it comes to: figures to read, and bars that hold or do not. */
import type { StartServer } from '../src/eval/arm-server.ts'
import type { Interval } from '../src/eval/stats.ts'

/** What was wanted of a figure, and whether it was so. */
export interface Bar {
  readonly id: string
  readonly value: number
  /** A 95 % interval. */
  readonly low: number
  readonly high: number
  readonly unit: string
  readonly want: string
  readonly holds: boolean
}

export interface BenchResult {
  readonly bars: readonly Bar[]
  /** Tables for a person. */
  readonly text: string
  /** What the tables are made from. */
  readonly figures: object
  /** What this run left out or cannot say. */
  readonly notMeasured: readonly string[]
}

export interface BenchWorld {
  readonly quick: boolean
  /** One of the bench's parts; null: all of them. */
  readonly only: string | null
  readonly model: string
  readonly start: StartServer
  /** One line of progress. */
  say(line: string): void
  readonly signal: AbortSignal
}

export interface Bench {
  readonly name: string
  readonly what: string
  /** Whether it wants the model there before it begins. */
  readonly needsModel: boolean
  /** What can be run by itself. */
  readonly parts?: readonly string[]
  run(world: BenchWorld): Promise<BenchResult>
}

/** Something that the machine must have for it is not there; the message says what to do. */
export class CannotRun extends Error {}

export const bar = (id: string, interval: Interval, unit: string, want: string, holds: boolean): Bar =>
  ({ id, ...interval, unit, want, holds })
