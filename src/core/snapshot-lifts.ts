/** Owns what snapshots of older releases mean today. */
import { digestNumber, listOf } from './digests.ts'
import { must } from './assert.ts'
import type { CallId } from './ids.ts'
import { readySince } from './queue/queue.ts'
import type { Call } from './state.ts'

/** State of an older release, by field; a lift gives the next version's. */
export type OldState = { readonly [field: string]: unknown }

/** The first makes version 1 into 2, and so on. */
export const SNAPSHOT_LIFTS: readonly ((old: OldState) => OldState)[] = [inColumns]

// ---------------------------------------------------------------- 1 to 2

type OldEntry = Readonly<Record<string, unknown>>
interface OldHeap { readonly entries: readonly OldEntry[]; readonly places: unknown }
interface OldTenants { readonly waiting: OldHeap; readonly shares: ReadonlyMap<string, { readonly calls: OldHeap }> }
type OldQueue = Readonly<Record<string, unknown>> & { readonly bands: readonly { readonly tenants: OldTenants }[] }

/** Heaps had a record an entry; a digest was a text. */
function inColumns(old: OldState): OldState {
  const queues = old['queues'] as ReadonlyMap<string, OldQueue>
  const digests = new Map<number, CallId | readonly CallId[]>()
  for (const [digest, id] of old['digests'] as ReadonlyMap<string, CallId>) {
    const number = digestNumber(digest)
    const others = listOf(digests.get(number) ?? [])
    digests.set(number, others.length === 0 ? id : [...others, id])
  }
  const calls = old['calls'] as ReadonlyMap<unknown, Call>
  const ofCall = ({ id, level, tie, seq }: OldEntry): unknown[] => [level, tie, seq, readySince(must(calls, id))]
  const tenantsOf = (tenants: OldTenants): unknown => ({
    ...tenants,
    waiting: heapOf(tenants.waiting, 2, ({ virtual, seq }) => [virtual, seq]),
    shares: new Map([...tenants.shares].map(([tenant, share]) => [tenant, { ...share, calls: heapOf(share.calls, 4, ofCall) }])),
  })
  const lifted = [...queues].map(([model, queue]) => [model, { ...queue, bands: queue.bands.map((band) => ({ ...band, tenants: tenantsOf(band.tenants) })) }] as const)
  return { ...old, digests, queues: new Map(lifted) }
}

const heapOf = ({ entries, places }: OldHeap, width: number, key: (entry: OldEntry) => unknown[]): unknown =>
  ({ width, ids: entries.map(({ id }) => id), numbers: entries.flatMap(key), places })
