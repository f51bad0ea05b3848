/** Owns the words for what tools do to the world outside. What is decided about them is in `effects.ts`. */
import type { InterruptId } from './ids.ts'

/** In the order of how bad it is to do it twice. */
export type Effect = 'read' | 'idempotent' | 'irreversible'

/** What is left of an interrupt in the world when its program is not. */
export interface EffectRemaining {
  readonly interrupt: InterruptId
  readonly effect: Effect
  readonly effectKey: string
  /** Tool calls known to be done. */
  readonly committed: readonly string[]
  /** Tool calls that were shown: only their runtime knows whether they were done. */
  readonly unknown: readonly string[]
}
