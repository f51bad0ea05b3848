/**
 * Owns the whole state as text and back, so that recovery need not begin at the first fact. A snapshot is the state after
 * one fact: with the facts that follow it gives what the whole log gives. Texts are JSON, a part of one collection each, in
 * columns (`columns.ts`). Where texts are kept, and that they are whole, is the store's. A change of the state's shape is
 * a new version, and `snapshot-lifts.ts` says what the older ones mean today.
 */
import { emptyCore } from './apply.ts'
import { assert } from './assert.ts'
import { columnOf, valuesOf, type Column, type Texts } from './columns.ts'
import type { CoreConfig } from './config.ts'
import { SNAPSHOT_LIFTS, type OldState } from './snapshot-lifts.ts'
import type { CoreState } from './state.ts'
import type { Us } from './units.ts'

export const SNAPSHOT_VERSION = 2

export interface Snapshot {
  readonly version: number
  /** Of the last fact in it. */
  readonly seq: number
  readonly atUs: Us
  /** Each is needed once, in this order. */
  readonly texts: Iterable<string>
}

/** Entries of one collection in one text. */
const ENTRIES_MAX = 2_000

interface Part {
  readonly field: string
  /** Texts that the columns of this part and of later ones name by number. */
  readonly texts: readonly string[]
  /** How many values the column has: one, or, of a Map, some of its entries. */
  readonly count: number
  /** Of a Map. */
  readonly keys: Column | null
  readonly values: Column
}

export function takeSnapshot(core: Readonly<CoreState>): Snapshot {
  const told: Texts = { numbers: new Map(), fresh: [] }
  const parts: string[] = []
  const tell = (field: string, keys: readonly unknown[] | null, values: readonly unknown[]): void => {
    const columns = { keys: keys === null ? null : columnOf(keys, told), values: columnOf(values, told) }
    const part: Part = { field, texts: told.fresh, count: values.length, ...columns }
    parts.push(JSON.stringify(part))
    told.fresh = []
  }
  for (const [field, value] of Object.entries(core)) {
    if (field === 'config') continue
    if (!(value instanceof Map)) {
      tell(field, null, [value])
      continue
    }
    const [keys, items] = [[...value.keys()], [...value.values()]]
    // An empty collection has one empty part, so that its field is there.
    for (let from = 0; from === 0 || from < keys.length; from += ENTRIES_MAX) {
      tell(field, keys.slice(from, from + ENTRIES_MAX), items.slice(from, from + ENTRIES_MAX))
    }
  }
  return { version: SNAPSHOT_VERSION, seq: core.seq, atUs: core.nowUs, texts: parts }
}

/** The state under today's configuration. Throws InvariantError for a version that this release does not know. */
export function restoreSnapshot(config: CoreConfig, snapshot: Snapshot): CoreState {
  const { version } = snapshot
  assert(version >= 1 && version <= SNAPSHOT_VERSION, `a snapshot has version ${version}; this release knows up to ${SNAPSHOT_VERSION}`)
  const empty = emptyCore(config)
  let fields: OldState = fieldsOf(snapshot.texts, { ...empty })
  for (const lift of SNAPSHOT_LIFTS.slice(version - 1)) fields = lift(fields)
  const core = { ...empty, ...fields, config } as CoreState
  // The one number of the state that the configuration says.
  return { ...core, host: { ...core.host, totalBytes: config.hostBytesMax } }
}

/** A collection that the empty state has is filled. */
function fieldsOf(parts: Iterable<string>, empty: OldState): OldState {
  const fields: Record<string, unknown> = {}
  const told: string[] = []
  for (const part of parts) {
    const { field, texts, count, keys, values } = JSON.parse(part) as Part
    for (const text of texts) told.push(text)
    const items = valuesOf(values, count, told)
    if (keys === null) fields[field] = items[0]
    else {
      const map = (fields[field] ??= empty[field] ?? new Map()) as Map<unknown, unknown>
      for (const [index, key] of valuesOf(keys, count, told).entries()) map.set(key, items[index])
    }
  }
  return fields
}
