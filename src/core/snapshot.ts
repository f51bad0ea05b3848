/**
 * Owns the whole state as text and back, so that recovery need not begin at the first fact. A snapshot is the state after
 * one fact: with the facts that follow it gives what the whole log gives. Texts are JSON, a part of one collection each;
 * Map and Set become lists, and where they stood is said beside them. Where texts are kept, and that they are whole, is
 * the store's. A change of the state's shape is a new version, and `SNAPSHOT_LIFTS` says what the older ones mean today.
 */
import { emptyCore } from './apply.ts'
import { assert } from './assert.ts'
import type { CoreConfig } from './config.ts'
import type { CoreState } from './state.ts'
import type { Us } from './units.ts'

export const SNAPSHOT_VERSION = 1

export interface Snapshot {
  readonly version: number
  /** Of the last fact in it. */
  readonly seq: number
  readonly atUs: Us
  /** Each is needed once, in this order. */
  readonly texts: Iterable<string>
}

/** State of an older release, by field; a lift gives the next version's. */
type OldState = { readonly [field: string]: unknown }
/** The first makes version 1 into 2, and so on. */
const SNAPSHOT_LIFTS: readonly ((old: OldState) => OldState)[] = []

/** Entries of one collection in one text. */
const ENTRIES_MAX = 2_000

type Path = readonly (string | number)[]
interface Collection { readonly path: Path; readonly kind: 'map' | 'set' }

interface Part {
  readonly field: string
  readonly isMap: boolean
  /** Of a Map: its entries, or some of them. */
  readonly value: unknown
  /** Lists in `value` that are a Map or a Set, outer before inner. */
  readonly collections: readonly Collection[]
}

export function takeSnapshot(core: Readonly<CoreState>): Snapshot {
  const texts: string[] = []
  for (const [field, value] of Object.entries(core)) {
    if (field === 'config') continue
    if (!(value instanceof Map)) texts.push(textOf(field, false, value))
    else for (const entries of chunks(value)) texts.push(textOf(field, true, entries))
  }
  return { version: SNAPSHOT_VERSION, seq: core.seq, atUs: core.nowUs, texts }
}

/** An empty collection has one empty chunk, so that its field is there. */
function* chunks(map: ReadonlyMap<unknown, unknown>): Generator<[unknown, unknown][]> {
  let chunk: [unknown, unknown][] = []
  for (const entry of map) {
    if (chunk.length === ENTRIES_MAX) {
      yield chunk
      chunk = []
    }
    chunk.push(entry)
  }
  yield chunk
}

function textOf(field: string, isMap: boolean, value: unknown): string {
  const collections: Collection[] = []
  if (holdsCollection(value)) find(value, [], collections)
  const part: Part = { field, isMap, value, collections }
  return JSON.stringify(part, collections.length === 0 ? undefined : asList)
}

const isCollection = (value: object): value is Map<unknown, unknown> | Set<unknown> => value instanceof Map || value instanceof Set

function asList(_key: string, value: unknown): unknown {
  return typeof value === 'object' && value !== null && isCollection(value) ? [...value] : value
}

/** Most hold none: this looks without remembering where. */
function holdsCollection(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false
  if (isCollection(value)) return true
  for (const key in value) if (holdsCollection((value as OldState)[key])) return true
  return false
}

function find(value: unknown, path: Path, found: Collection[]): void {
  if (typeof value !== 'object' || value === null) return
  if (!isCollection(value)) {
    for (const [key, inner] of Object.entries(value)) find(inner, [...path, key], found)
    return
  }
  found.push({ path, kind: value instanceof Map ? 'map' : 'set' })
  for (const [index, inner] of [...value].entries()) find(inner, [...path, index], found)
}

/** The state under today's configuration. Throws InvariantError for a version that this release does not know. */
export function restoreSnapshot(config: CoreConfig, snapshot: Snapshot): CoreState {
  const { version } = snapshot
  assert(version >= 1 && version <= SNAPSHOT_VERSION, `a snapshot has version ${version}; this release knows up to ${SNAPSHOT_VERSION}`)
  let fields: OldState = fieldsOf(snapshot.texts)
  for (const lift of SNAPSHOT_LIFTS.slice(version - 1)) fields = lift(fields)
  const core = { ...emptyCore(config), ...fields, config } as CoreState
  // The one number of the state that the configuration says.
  return { ...core, host: { ...core.host, totalBytes: config.hostBytesMax } }
}

function fieldsOf(texts: Iterable<string>): OldState {
  const fields: Record<string, unknown> = {}
  for (const text of texts) {
    const part = JSON.parse(text) as Part
    const value = revived(part)
    if (!part.isMap) fields[part.field] = value
    else {
      const map = (fields[part.field] ??= new Map()) as Map<unknown, unknown>
      for (const [key, item] of value as [unknown, unknown][]) map.set(key, item)
    }
  }
  return fields
}

/** Inner collections first, so that an outer one takes them in. */
function revived({ value, collections }: Part): unknown {
  const whole = { value }
  for (const { path, kind } of [...collections].reverse()) {
    const [last, ...outer] = ['value', ...path].reverse() as [string | number, ...(string | number)[]]
    const holder = outer.reverse().reduce<unknown>((at, key) => (at as OldState)[key], whole) as Record<string | number, unknown>
    const list = holder[last] as unknown[]
    holder[last] = kind === 'map' ? new Map(list as [unknown, unknown][]) : new Set(list)
  }
  return whole.value
}
