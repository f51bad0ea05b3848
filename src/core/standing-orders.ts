/**
 * Owns what an engine may do without asking: ranks and grants of what runs there, and how each gives way; told only where
 * they changed. Of those told before, only the ones that a fact of this turn touched are placed anew. The spare lane of an
 * engine whose granule is a lane is the one of its worst running call, whose order lets it be offloaded.
 */
import { must } from './assert.ts'
import type { Deciding } from './deciding.ts'
import type { CallId } from './ids.ts'
import { granulesTotal, stateOf } from './kv/kv-read.ts'
import { compareCalls } from './queue/queue.ts'
import type { CoreState, Engine, StandingOrder } from './state.ts'
import type { Granules } from './units.ts'

interface Line { readonly call: CallId; readonly grantGranules: Granules }

/** `reranked`: calls of any engine whose key, grant or place may have changed. */
export function giveOrders(d: Deciding, engine: Engine, reranked: ReadonlySet<CallId>): void {
  if (engine.stage !== 'joined' || !engine.capabilities.rank) return
  const lines: Line[] = engine.orders.filter(({ call }) => engine.running.has(call) && !reranked.has(call))
  for (const call of reranked) if (engine.running.has(call)) insert(d.core, lines, call)
  const asVictim = asVictimOn(engine)
  const orders = lines.map(({ call, grantGranules }, rank): StandingOrder => ({ call, rank, grantGranules, asVictim }))
  if (!sameOrders(orders, engine.orders)) d.emit({ kind: 'engine.ordered', engine: engine.id, orders })
}

/** Before the first that it goes before. */
function insert(core: Readonly<CoreState>, lines: Line[], id: CallId): void {
  const call = must(core.calls, id)
  let low = 0
  let high = lines.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (compareCalls(must(core.calls, (lines[middle] as Line).call), call) < 0) low = middle + 1
    else high = middle
  }
  lines.splice(low, 0, { call: id, grantGranules: stateOf(core, call)?.device?.granules ?? 0 })
}

const sameOrders = (a: readonly StandingOrder[], b: readonly StandingOrder[]): boolean =>
  a.length === b.length && a.every((order, rank) => {
    const other = b[rank]
    return order.call === other?.call && order.grantGranules === other.grantGranules && order.asVictim === other.asVictim
  })

/** Where a State takes one granule whole, a pause alone frees nothing. */
function asVictimOn(engine: Engine): StandingOrder['asVictim'] {
  if (granulesTotal(engine) === 0) return 'pause'
  return engine.capabilities.offload ? 'offload' : engine.capabilities.discard ? 'discard' : 'pause'
}
