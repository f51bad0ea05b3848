/** Owns the laws of what bends an order (13): it concerns calls that are there to be served, and is counted once. */
import { must } from '../assert.ts'
import type { TenantId } from '../ids.ts'
import type { CoreState } from '../state.ts'
import { isOver } from '../call-read.ts'
import { law } from './law.ts'

export function checkTurns(core: Readonly<CoreState>): void {
  const { reservations, aging } = core.turns
  for (const [id, { call, granules }] of reservations) {
    const kind = core.calls.get(call)?.stage.kind
    law(13, kind === 'ready' && granules > 0, () => `${id} keeps ${granules} granules for ${call}, which is ${kind ?? 'gone'}`)
    law(13, must(core.engines, id).stage === 'joined', () => `memory is kept on ${id}, which is lost`)
    law(13, must(core.engines, id).draining !== true, () => `memory is kept on ${id}, which is drained`)
  }
  let low = 0
  for (const call of core.calls.values()) {
    if (call.stage.kind !== 'ready' || call.level <= 0) continue
    low += 1
    law(13, aging.has(call.id), () => `${call.id} waits at level ${call.level} and does not age`)
  }
  law(13, aging.size === low, () => `${aging.size} calls age, and ${low} wait below the top`)
  checkBoosts(core)
}

function checkBoosts(core: Readonly<CoreState>): void {
  const { boosts, accounts } = core.turns
  const open = new Map<TenantId, number>()
  for (const [id, { kind }] of boosts) {
    const call = core.calls.get(id)
    law(13, call !== undefined && !isOver(call), () => `a boost is remembered of ${id}, which is over`)
    if (call !== undefined && kind === 'given') open.set(call.payer, (open.get(call.payer) ?? 0) + 1)
  }
  for (const [tenant, account] of accounts) {
    law(13, account.open === (open.get(tenant) ?? 0), () => `${tenant} has ${open.get(tenant) ?? 0} boosts, and ${account.open} are counted`)
  }
}
