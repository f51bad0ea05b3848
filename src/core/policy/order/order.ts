/**
 * Owns the interface of an order: where a ready call stands among the others of its model. Pure; a key changes only when
 * a fact about the call or its program does. Smaller is better; the call's `seq` ends every order.
 */
import type { Call, CoreState } from '../../state.ts'

interface OrderKey { readonly level: number; readonly tie: number }

export interface OrderPolicy {
  readonly name: string
  key(core: Readonly<CoreState>, call: Readonly<Call>): OrderKey
  /** Whether a ready call is so much better than a running one that it may take its place. */
  preempts(ready: OrderKey, running: OrderKey): boolean
}
