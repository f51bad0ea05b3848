/**
 * Owns plain data as columns and back: many values of one shape become one list a field, what is the same in all of them
 * is said once, and a text that stands in several places is kept once and named by its number. Most of what a state holds
 * is at its default and most of its texts are ids that others name, so a column form is a third of the records' size and
 * is read in half the time. Map and Set come back as they were, each in its order. What the values mean is for others.
 */
import { assert } from './assert.ts'
import { compiled } from './compiled.ts'

type Plain = string | number | boolean | null

export type Column =
  | { readonly kind: 'same'; readonly value: Plain }
  | { readonly kind: 'plain'; readonly values: Plain[] }
  /** Numbers of texts; `texts`: so many in a row, as ids are where they are first told. */
  | { readonly kind: 'text'; readonly at: readonly number[] }
  | { readonly kind: 'texts'; readonly from: number }
  | { readonly kind: 'record'; readonly keys: readonly string[]; readonly columns: readonly Column[] }
  | { readonly kind: 'list' | 'set'; readonly lengths: Column; readonly items: Column }
  | { readonly kind: 'map'; readonly lengths: Column; readonly keys: Column; readonly items: Column }
  /** Values of several sorts: which each is, and a column a sort. */
  | { readonly kind: 'mixed'; readonly which: Column; readonly columns: readonly Column[] }

/** Texts told so far, by number; `fresh` are those that the reader has not been told yet. */
export interface Texts { readonly numbers: Map<string, number>; fresh: string[] }

type Sort = 'plain' | 'text' | 'list' | 'set' | 'map' | `{${string}`

function sortOf(value: unknown): Sort {
  if (typeof value === 'string') return 'text'
  if (typeof value !== 'object' || value === null) {
    assert(value === null || typeof value === 'number' || typeof value === 'boolean', `a state holds no ${typeof value}`)
    return 'plain'
  }
  if (Array.isArray(value)) return 'list'
  if (value instanceof Map) return 'map'
  if (value instanceof Set) return 'set'
  return `{${JSON.stringify(Object.keys(value))}`
}

/** Throws InvariantError for what is not plain data. */
export function columnOf(values: readonly unknown[], texts: Texts): Column {
  const sorts = values.map(sortOf)
  const [first] = sorts
  if (first === undefined) return { kind: 'same', value: null }
  if (sorts.every((sort) => sort === first)) return columnOfSort(first, values, texts)
  const named = [...new Set(sorts)]
  const numbers = new Map(named.map((sort, index) => [sort, index]))
  const which = columnOf(sorts.map((sort) => numbers.get(sort)), texts)
  const columns = named.map((sort) => columnOfSort(sort, values.filter((_, index) => sorts[index] === sort), texts))
  return { kind: 'mixed', which, columns }
}

function columnOfSort(sort: Sort, values: readonly unknown[], texts: Texts): Column {
  const [first] = values
  switch (sort) {
    case 'plain':
      return values.every((value) => value === first) ? { kind: 'same', value: first as Plain } : { kind: 'plain', values: values as Plain[] }
    case 'text':
      return values.every((value) => value === first) ? { kind: 'same', value: first as string } : textColumn(values as string[], texts)
    case 'list': {
      const lists = values as unknown[][]
      return { kind: 'list', lengths: columnOf(lists.map(({ length }) => length), texts), items: columnOf(lists.flat(), texts) }
    }
    case 'set': {
      const sets = values as Set<unknown>[]
      return { kind: 'set', lengths: columnOf(sets.map(({ size }) => size), texts), items: columnOf(sets.flatMap((set) => [...set]), texts) }
    }
    case 'map': {
      const maps = values as Map<unknown, unknown>[]
      const keys = columnOf(maps.flatMap((map) => [...map.keys()]), texts)
      return { kind: 'map', lengths: columnOf(maps.map(({ size }) => size), texts), keys, items: columnOf(maps.flatMap((map) => [...map.values()]), texts) }
    }
    default: {
      const records = values as Readonly<Record<string, unknown>>[]
      const keys = Object.keys(first as object)
      return { kind: 'record', keys, columns: keys.map((key) => columnOf(records.map((record) => record[key]), texts)) }
    }
  }
}

function textColumn(values: readonly string[], { numbers, fresh }: Texts): Column {
  const at = values.map((text) => {
    const known = numbers.get(text)
    if (known !== undefined) return known
    fresh.push(text)
    numbers.set(text, numbers.size)
    return numbers.size - 1
  })
  const from = at[0] ?? 0
  return at.every((number, index) => number === from + index) ? { kind: 'texts', from } : { kind: 'text', at }
}

/** The values of a column of so many; `texts` in the order they were told. Takes what it can of the column for its own. */
export function valuesOf(column: Column, count: number, texts: readonly string[]): unknown[] {
  switch (column.kind) {
    case 'same': return new Array<unknown>(count).fill(column.value)
    case 'plain': return column.values
    case 'text': return column.at.map((number) => texts[number])
    case 'texts': return texts.slice(column.from, column.from + count)
    case 'record': return rowsOf(column.keys, column.columns.map((inner) => valuesOf(inner, count, texts)), count)
    case 'list': return pieces(column, count, texts)
    case 'set': return pieces(column, count, texts).map((items) => new Set(items))
    case 'map': {
      const keys = pieces({ lengths: column.lengths, items: column.keys }, count, texts)
      return pieces(column, count, texts).map((items, index) => new Map(keys[index]?.map((key, at) => [key, items[at]])))
    }
    case 'mixed': return mixed(column, count, texts)
  }
}

function pieces({ lengths, items }: { readonly lengths: Column; readonly items: Column }, count: number, texts: readonly string[]): unknown[][] {
  const each = valuesOf(lengths, count, texts) as number[]
  const all = valuesOf(items, each.reduce((sum, length) => sum + length, 0), texts)
  let at = 0
  return each.map((length) => all.slice(at, at += length))
}

function mixed({ which, columns }: Extract<Column, { kind: 'mixed' }>, count: number, texts: readonly string[]): unknown[] {
  const sorts = valuesOf(which, count, texts) as number[]
  const counts = columns.map(() => 0)
  for (const sort of sorts) counts[sort] = (counts[sort] ?? 0) + 1
  const ofSort = columns.map((column, sort) => valuesOf(column, counts[sort] ?? 0, texts)[Symbol.iterator]())
  return sorts.map((sort) => ofSort[sort]?.next().value)
}

type Rows = (columns: readonly unknown[][], count: number) => unknown[]
/** By keys. */
const ROWS = new Map<string, Rows>()
const SHAPES_MAX = 1_000
const NAME = /^[A-Za-z]\w*$/

/**
 * Records of the same keys. A literal, made once for each list of keys, is what gives them the memory that records have
 * where the core makes them: set key by key they take nearly twice as much, and the time for it.
 */
function rowsOf(keys: readonly string[], columns: readonly unknown[][], count: number): unknown[] {
  if (!keys.every((key) => NAME.test(key))) return plainRows(keys, columns, count)
  const shape = keys.join()
  let rows = ROWS.get(shape)
  if (rows === undefined) {
    const list = keys.map((_, index) => `c${index}`)
    const fields = keys.map((key, index) => `${key}: c${index}[row]`)
    rows = compiled<Rows>(['columns', 'count'], `
      const [${list.join()}] = columns
      const rows = new Array(count)
      for (let row = 0; row < count; row += 1) rows[row] = { ${fields.join()} }
      return rows`) ?? ((from, length) => plainRows(keys, from, length))
    if (ROWS.size >= SHAPES_MAX) ROWS.clear()
    ROWS.set(shape, rows)
  }
  return rows(columns, count)
}

const plainRows: (keys: readonly string[], columns: readonly unknown[][], count: number) => unknown[] = (keys, columns, count) =>
  Array.from({ length: count }, (_, row) => Object.fromEntries(keys.map((key, index) => [key, columns[index]?.[row]])))
