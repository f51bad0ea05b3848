/**
 * Owns a record as what differs from another of its kind, and back. Records that lie side by side are nearly alike, so a
 * difference is a few words where the record is some dozens: a list of places and values, by the order of its keys. So is a
 * record in a record; all other values are whole. For plain data that JSON gives back as it was, no Map or Set.
 */
import { InvariantError } from '../assert.ts'
import { compiled } from '../compiled.ts'

/** Records of one kind: the same keys in the same order. */
export interface Kind {
  values(record: object): unknown[]
  record(values: readonly unknown[]): object
}

/** What JSON of a difference holds: a text told for the first time, true, false and null are themselves, a number is how much larger it is. */
type Value = string | number | boolean | null | readonly unknown[]
/** Of a list: what follows in it. */
const WHOLE = 0
const PLACES = 1
const TOLD = 2

/** Shorter ones are told each time. */
const TOLD_LENGTH_MIN = 6

export function kindOf(example: object): Kind {
  const keys = Object.keys(example)
  const fields = keys.map((key, place) => `${key}: v[${place}]`)
  return {
    values: compiled<Kind['values']>(['r'], `return [${keys.map((key) => `r.${key}`).join()}]`) ?? ((record) => keys.map((key) => (record as Readonly<Record<string, unknown>>)[key])),
    // A literal: what is made so has the memory, and the speed, of what the core makes.
    record: compiled<Kind['record']>(['v'], `return { ${fields.join()} }`) ?? ((values) => Object.fromEntries(keys.map((key, place) => [key, values[place]]))),
  }
}

/** Of the values of two records of one kind; empty: they are the same. `told`: texts by number, for all differences that are read together. */
export function difference(values: readonly unknown[], before: readonly unknown[], told: Map<string, number>): unknown[] {
  const places: unknown[] = []
  for (let place = 0; place < values.length; place += 1) {
    const value = values[place]
    if (value === before[place]) continue
    const different = differenceOf(value, before[place], told)
    if (different !== undefined) places.push(place, different)
  }
  return places
}

/** Undefined where they are the same. */
function differenceOf(value: unknown, before: unknown, told: Map<string, number>): Value | undefined {
  switch (typeof value) {
    case 'string': return toldOf(value, told)
    case 'number': return typeof before === 'number' && Number.isSafeInteger(value - before) && before + (value - before) === value ? value - before : [WHOLE, value]
    case 'boolean': return value
    case 'object': return value === null ? null : differenceOfObject(value, before, told)
    default: throw new InvariantError(0, `no ${typeof value} is plain data`)
  }
}

function toldOf(text: string, told: Map<string, number>): Value {
  const number = told.get(text)
  if (number !== undefined) return [TOLD, number]
  if (text.length >= TOLD_LENGTH_MIN) told.set(text, told.size)
  return text
}

function differenceOfObject(value: object, before: unknown, told: Map<string, number>): Value | undefined {
  if (typeof before !== 'object' || before === null) return [WHOLE, value]
  if (Array.isArray(value)) return Array.isArray(before) && (value.length + before.length === 0 || JSON.stringify(value) === JSON.stringify(before)) ? undefined : [WHOLE, value]
  const keys = Object.keys(value)
  const others = Object.keys(before)
  if (keys.length !== others.length || keys.some((key, place) => key !== others[place])) return [WHOLE, value]
  const places = difference(Object.values(value), Object.values(before), told)
  return places.length === 0 ? undefined : [PLACES, ...places]
}

/** The values that differ so from `before`; what does not differ in them is shared. `told`: as they were told so far. */
export function differing(before: readonly unknown[], places: readonly unknown[], told: string[]): unknown[] {
  const values = [...before]
  for (let index = 0; index < places.length; index += 2) {
    const place = places[index] as number
    values[place] = valueOf(before[place], places[index + 1], told)
  }
  return values
}

function valueOf(before: unknown, value: unknown, told: string[]): unknown {
  if (typeof value === 'number') return before as number + value
  if (typeof value === 'string' && value.length >= TOLD_LENGTH_MIN) told.push(value)
  if (!Array.isArray(value)) return value
  if (value[0] === WHOLE) return value[1]
  if (value[0] === TOLD) return told[value[1] as number]
  const record: Record<string, unknown> = { ...before as object }
  const keys = Object.keys(record)
  for (let index = 1; index < value.length; index += 2) {
    const key = keys[value[index] as number] as string
    record[key] = valueOf(record[key], value[index + 1], told)
  }
  return record
}
