/**
 * Owns the interface of an order: where a ready call stands among the others of its model. Pure; a key changes only when
 * a fact about the call or its program does. Smaller is better; the call's `seq` ends every order. What is above it
 * (bands, tenants) and what is added to it (deadlines) have files of their own.
 */
import type { OrderName } from '../../config.ts'
import type { Call, CoreState } from '../../state.ts'
import type { Us } from '../../units.ts'

interface OrderKey { readonly level: number; readonly tie: number }

/** How long somebody has waited in queues, and what it was served. */
export interface Balance { readonly waitedUs: Us; readonly servedUs: Us }

export interface OrderPolicy {
  readonly name: OrderName
  /** Where the call stands: read when it becomes ready, and while it runs, to see whether its own service has taken it down. */
  key(core: Readonly<CoreState>, call: Readonly<Call>): OrderKey
  /** Whether a ready call is so much better than a running one that it may take its place. */
  preempts(ready: OrderKey, running: OrderKey): boolean
  /** Whose waiting takes a call to the top (`promote.ts`); absent where nothing does. */
  balance?(core: Readonly<CoreState>, call: Readonly<Call>, nowUs: Us): Balance
}
