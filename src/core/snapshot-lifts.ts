/** Owns what snapshots of older releases mean today. */
import { digestNumber, listOf, type Digests } from './digests.ts'
import type { CallId } from './ids.ts'

/** State of an older release, by field; a lift gives the next version's. */
export type OldState = { readonly [field: string]: unknown }

/** The first makes version 1 into 2, and so on. */
export const SNAPSHOT_LIFTS: readonly ((old: OldState) => OldState)[] = [inColumns]

// ---------------------------------------------------------------- 1 to 2

interface OldHeap { readonly entries: readonly Readonly<Record<string, unknown>>[]; readonly places: unknown }
interface OldTenants { readonly waiting: OldHeap; readonly shares: ReadonlyMap<string, { readonly calls: OldHeap }> }
type OldQueue = Readonly<Record<string, unknown>> & { readonly bands: readonly { readonly tenants: OldTenants }[] }

/** Heaps had a record an entry; a digest was a text. */
function inColumns(old: OldState): OldState {
  const queues = old['queues'] as ReadonlyMap<string, OldQueue>
  const digests: Digests = new Map()
  for (const [digest, id] of old['digests'] as ReadonlyMap<string, CallId>) {
    const number = digestNumber(digest)
    const others = listOf(digests.get(number) ?? [])
    digests.set(number, others.length === 0 ? id : [...others, id])
  }
  return { ...old, digests, queues: new Map([...queues].map(([model, queue]) => [model, { ...queue, bands: queue.bands.map((band) => ({ ...band, tenants: tenantsOf(band.tenants) })) }])) }
}

const tenantsOf = (tenants: OldTenants): unknown => ({
  ...tenants,
  waiting: heapOf(tenants.waiting, ['virtual', 'seq']),
  shares: new Map([...tenants.shares].map(([tenant, share]) => [tenant, { ...share, calls: heapOf(share.calls, ['level', 'tie', 'seq']) }])),
})

const heapOf = ({ entries, places }: OldHeap, key: readonly string[]): unknown => ({
  width: key.length, ids: entries.map(({ id }) => id), numbers: entries.flatMap((entry) => key.map((name) => entry[name])), places,
})
