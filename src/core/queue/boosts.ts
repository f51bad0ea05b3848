/**
 * Owns what is remembered of boosts: who has one, who was last told why not, and how much of each tenant's service went
 * to boosted calls. Its writes are for `apply` only. A boost changes the order among the calls of one tenant and band, and
 * nothing above it.
 */
import { workOf } from '../account.ts'
import type { BoostAccount } from './turn-state.ts'
import type { TenantId } from '../ids.ts'
import { dequeue, enqueue } from './queue.ts'
import type { Call, CoreState, Ledger } from '../state.ts'

/** The key of a boosted call, in place of its order's. */
export function boostOf(core: Readonly<CoreState>, call: Readonly<Call>): { readonly level: number; readonly tie: number } | null {
  const boost = core.turns.boosts.get(call.id)
  return boost?.kind === 'given' ? boost : null
}

export const boostAccountOf = (core: Readonly<CoreState>, tenant: TenantId): Readonly<BoostAccount> =>
  core.turns.accounts.get(tenant) ?? { boostedUs: 0, open: 0 }

// ---------------------------------------------------------------- for `apply` only

export function giveBoost(core: CoreState, call: Call, level: number, tie: number): void {
  if (boostOf(core, call) === null) {
    const { boostedUs, open } = boostAccountOf(core, call.payer)
    core.turns.accounts.set(call.payer, { boostedUs, open: open + 1 })
  }
  core.turns.boosts.set(call.id, { kind: 'given', level, tie })
  rekey(core, call, level, tie)
}

/** It stands elsewhere in its order from now on; how long it has waited is not touched. */
export function rekey(core: CoreState, call: Call, level: number, tie: number): void {
  const queued = call.stage.kind === 'ready'
  if (queued) leaveLine(core, call)
  call.level = level
  call.tie = tie
  if (queued) joinLine(core, call)
}

/** The only way into a queue. */
export function joinLine(core: CoreState, call: Call): void {
  enqueue(core, call)
  if (call.level > 0) core.turns.aging.set(call.id, core.nowUs)
}

/** The only way out of a queue. */
export function leaveLine(core: CoreState, call: Call): void {
  dequeue(core, call)
  core.turns.aging.delete(call.id)
}

export function chargeBoost(core: CoreState, call: Readonly<Call>, grown: Ledger): void {
  if (boostOf(core, call) === null) return
  const account = core.turns.accounts.get(call.payer)
  if (account !== undefined) account.boostedUs += workOf(grown)
}

/** The call is over. */
export function endBoost(core: CoreState, call: Readonly<Call>): void {
  const account = boostOf(core, call) === null ? undefined : core.turns.accounts.get(call.payer)
  if (account !== undefined) account.open -= 1
  core.turns.boosts.delete(call.id)
}
