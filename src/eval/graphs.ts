/**
 * Owns the checked-in programs with forks and joins, beside the mix: their shape, and when a seed lets each arrive. How
 * they were made is in `data/mix/README.md`; running one is `graph-agent.ts`.
 */
import { readData } from './data-files.ts'
import { Draw } from './draw.ts'
import type { Mix } from './mix.ts'
import type { JoinRule } from './program-client.ts'

/** Calls beside each other, and the join that waits for them. */
export interface GraphLevel {
  /** Of its nodes: `map 1`, `map 2` ..., or this alone where there is one. */
  readonly name: string
  /**
   * Where its calls begin. `anew`: in conversations of their own, over notes, or over what the level before came to;
   * `forked`: each in a thread forked from the first path that the join left; `onward`: in that path's own thread.
   */
  readonly begins: 'anew' | 'forked' | 'onward'
  readonly task: string
  /** Of notes, in tokens of the default model, for each call; 0: none. */
  readonly notesTokens: number
  /** At most, one entry a call. */
  readonly outputTokens: readonly number[]
  /** Null where there is one call. */
  readonly join: JoinRule | null
}

export interface GraphProgram {
  readonly name: string
  readonly kind: string
  readonly levels: readonly GraphLevel[]
}

export const loadGraphs = (): readonly GraphProgram[] =>
  readData<{ readonly programs: readonly GraphProgram[] }>('mix', 'graphs.json').programs

export const callsOf = ({ levels }: GraphProgram): number => levels.reduce((sum, { outputTokens }) => sum + outputTokens.length, 0)

export interface GraphArrival {
  readonly program: GraphProgram
  readonly atMs: number
}

/** Each at a moment by chance while the mix arrives, from a stream of its own: the mix arrives as it does without them. */
export const planGraphs = (graphs: readonly GraphProgram[], mix: Mix, seed: number): readonly GraphArrival[] =>
  graphs.map((program) => ({ program, atMs: Draw.of(seed, program.name).below(mix.arrivalMeanMs * mix.programs.length) }))
