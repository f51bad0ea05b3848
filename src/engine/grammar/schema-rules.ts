/**
 * Owns turning a JSON schema into grammar rules. What a schema says is held, or refused by name with its path
 * (SchemaError); nothing is passed over but annotations.
 *
 * What the rules accept is valid under the schema; it need not be all that is valid: members come in the order of
 * `properties`, then those that only `required` names, and no others (where it names none and `additionalProperties` is
 * true or a schema, members are free).
 */
import { FORMATS } from './formats.ts'
import { jsonText } from './json-text.ts'
import { integersBetween, numbersBetween } from './number-range.ts'
import type { Bounds } from './number-range.ts'
import { patternText } from './pattern.ts'
import { literal, repeated } from './rules.ts'
import type { Rules } from './rules.ts'
import { SchemaError, below } from './schema-error.ts'
import { SchemaMerge } from './schema-merge.ts'
import { checkKeywords, isOfType, isSchema, overlapOf, resolved, typesOf } from './schema-shape.ts'
import type { Schema, Type } from './schema-shape.ts'

export const SCHEMA_DEPTH_MAX = 32
export const ITEMS_MAX = 10_000
export const STRING_LENGTH_MAX = 100_000
/** Each is compared with each. */
const BRANCHES_MAX = 200

const COMBINATIONS = ['$ref', 'anyOf', 'oneOf', 'allOf']
const NO_OBJECT = 'the arguments of a tool must be an object'

/** Where in the schema we are. */
interface Place {
  readonly path: string
  readonly depth: number
  /** References followed since something was last written: to follow one again would never end. */
  readonly followed: ReadonlySet<string>
}

export class SchemaRules {
  readonly #rules: Rules
  readonly #root: Schema
  /** Rules made of `$ref`s. */
  readonly #references = new Map<string, string>()
  readonly #merge: SchemaMerge

  constructor(rules: Rules, root: Schema) {
    this.#rules = rules
    this.#root = root
    this.#merge = new SchemaMerge(root)
  }

  /** The name of a rule for the whole schema, which must be one of objects. */
  arguments(path: string): string {
    const place: Place = { path, depth: 0, followed: new Set() }
    checkKeywords(this.#root, path)
    const types = typesOf(this.#root, this.#root)
    if (types === null) {
      // What it refers to may be anything, or nothing; a reference that leads nowhere is named first.
      if (COMBINATIONS.some((keyword) => this.#root[keyword] !== undefined)) {
        this.#schema(this.#root, place)
        throw new SchemaError(path, NO_OBJECT)
      }
      const bare = Object.keys(this.#root).length === 0
      return this.#object(bare ? { type: 'object' } : this.#root, place)
    }
    if (types.some((type) => type !== 'object')) {
      throw new SchemaError(path, NO_OBJECT)
    }
    return this.#schema(this.#root, place)
  }

  /** The name of a rule or a literal for the whole schema. */
  value(path: string): string {
    return this.#schema(this.#root, { path, depth: 0, followed: new Set() })
  }

  /** The same for one property. */
  member(path: string, name: string, schema: unknown): string {
    return this.#schema(schema, this.#inside({ path, depth: 0, followed: new Set() }, 'properties', name))
  }

  /** An expression without alternatives at its top: a rule's name, or a literal. */
  #schema(schema: unknown, place: Place): string {
    const { path } = place
    if (place.depth > SCHEMA_DEPTH_MAX) throw new SchemaError(path, `is nested deeper than ${SCHEMA_DEPTH_MAX}`)
    const plain = this.#merge.plain(schema, path)
    if (plain === true) return this.#rules.basic('value')
    if (plain === false) throw new SchemaError(path, 'nothing satisfies it')
    if (!isSchema(plain)) throw new SchemaError(path, 'is no schema')
    checkKeywords(plain, path)
    const made = this.#made(plain, place)
    return plain['nullable'] === true ? this.#rules.add(`${made} | "null"`, path) : made
  }

  #made(schema: Schema, place: Place): string {
    const { path } = place
    if (schema['$ref'] !== undefined) return this.#reference(schema['$ref'], place)
    if (schema['const'] !== undefined || 'const' in schema) return literal(jsonText(schema['const']))
    if (schema['enum'] !== undefined) return this.#enumeration(schema, place)
    const branches = schema['anyOf'] ?? schema['oneOf']
    if (branches !== undefined) return this.#branches(schema, branches, place)
    const types = typesOf(schema, this.#root)
    if (types === null) return this.#rules.basic('value')
    const made = types.map((type) => this.#typed(type, schema, place))
    return made.length === 1 ? made[0] ?? '""' : this.#rules.add(made.join(' | '), path)
  }

  #typed(type: Type, schema: Schema, place: Place): string {
    switch (type) {
      case 'object': return this.#object(schema, place)
      case 'array': return this.#array(schema, place)
      case 'string': return this.#string(schema, place)
      case 'integer':
      case 'number': return this.#number(type, schema, place)
      case 'boolean':
      case 'null': return this.#rules.basic(type)
    }
  }

  // ------------------------------------------------------------- combinations

  #reference(target: unknown, place: Place): string {
    const found = resolved(this.#root, target, place.path)
    if (typeof target !== 'string') throw new SchemaError(place.path, '"$ref" is no text')
    if (place.followed.has(target)) throw new SchemaError(place.path, `"$ref" ${target} leads to itself`)
    const known = this.#references.get(target)
    if (known !== undefined) return known
    const name = this.#rules.reserve()
    // A reference from inside an object or an array may come back here: that is recursion, and has a name by now.
    const followed = new Set([...place.followed, target])
    this.#references.set(target, name)
    const made = this.#schema(found, { ...place, path: below(place.path, '$ref'), followed })
    return this.#rules.define(name, made, place.path)
  }

  #enumeration(schema: Schema, { path }: Place): string {
    const values = schema['enum']
    if (!Array.isArray(values)) throw new SchemaError(path, '"enum" is no list')
    const types = typesOf({ type: schema['type'] }, this.#root)
    const fitting = values.filter((value) => types === null || types.some((type) => isOfType(value, type)))
    if (fitting.length === 0) throw new SchemaError(path, '"enum" has no value of the type')
    return this.#rules.add([...new Set(fitting.map((value) => literal(jsonText(value))))].join(' | '), path)
  }

  #branches(schema: Schema, branches: unknown, place: Place): string {
    const keyword = schema['anyOf'] === undefined ? 'oneOf' : 'anyOf'
    if (!Array.isArray(branches) || branches.length === 0) throw new SchemaError(place.path, `"${keyword}" is no list`)
    if (keyword === 'oneOf' && branches.length > BRANCHES_MAX) {
      throw new SchemaError(place.path, `"oneOf" of more than ${BRANCHES_MAX} cannot be enforced`)
    }
    const possible = branches.flatMap((branch: unknown, i) => {
      const path = below(place.path, keyword, i)
      const plain = this.#merge.plain(branch, path)
      return plain === false ? [] : [{ plain, path }]
    })
    if (possible.length === 0) throw new SchemaError(place.path, 'nothing satisfies it')
    const overlap = keyword === 'oneOf' ? overlapOf(possible.map(({ plain }) => plain), this.#root) : null
    if (overlap !== null) throw new SchemaError(place.path, `"oneOf": ${overlap}`)
    const made = possible.map(({ plain, path }) => this.#schema(plain, { ...place, path, depth: place.depth + 1 }))
    return this.#rules.add([...new Set(made)].join(' | '), place.path)
  }

  // ------------------------------------------------------------- values

  #object(schema: Schema, place: Place): string {
    const { path } = place
    const properties = schema['properties'] ?? {}
    if (!isSchema(properties)) throw new SchemaError(path, '"properties" is no object')
    const required = requiredOf(schema, path)
    const additional = schema['additionalProperties']
    const missing = [...required].filter((name) => !Object.hasOwn(properties, name))
    if (missing.length > 0 && additional === false) {
      throw new SchemaError(path, `nothing satisfies it: "required" names ${JSON.stringify(missing[0])}, which is no property`)
    }
    const named = [...Object.entries(properties), ...missing.map((name) => [name, additional ?? true] as const)]
      .filter(([name, member]) => member !== false || required.has(name))
    if (named.length === 0) return this.#free(additional ?? false, place)
    const members = named.map(([name, member]) => ({
      text: `${literal(`${JSON.stringify(name)}: `)} ${this.#schema(member, this.#inside(place, 'properties', name))}`,
      required: required.has(name),
    }))
    return this.#rules.add(`"{" ${this.#members(members, path)} "}"`, path)
  }

  /**
   * Members in order, with a comma before each but the first that comes. `tails[i]` is what may follow once one has
   * come and i were passed.
   */
  #members(members: readonly { readonly text: string; readonly required: boolean }[], path: string): string {
    const tails: string[] = Array<string>(members.length + 1).fill('')
    for (let i = members.length - 1; i > 0; i--) {
      const { text, required } = members[i] ?? { text: '', required: true }
      const member = required ? `", " ${text}` : `(", " ${text})?`
      tails[i] = this.#rules.add(`${member} ${tails[i + 1] ?? ''}`.trimEnd(), path)
    }
    const first = members.findIndex((member) => member.required)
    const starts = members.slice(0, first === -1 ? members.length : first + 1)
      .map(({ text }, i) => `${text} ${tails[i + 1] ?? ''}`.trimEnd())
    if (first === -1) starts.push('""')
    return starts.length === 1 ? starts[0] ?? '' : `(${starts.join(' | ')})`
  }

  #free(additional: unknown, place: Place): string {
    if (additional === false) return literal('{}')
    if (additional === true) return this.#rules.basic('object')
    const value = this.#schema(additional, this.#inside(place, 'additionalProperties'))
    const pair = this.#rules.add(`${this.#rules.basic('string')} ": " ${value}`, place.path)
    return this.#rules.add(`"{" (${pair} (", " ${pair})*)? "}"`, place.path)
  }

  #array(schema: Schema, place: Place): string {
    const { path } = place
    const least = count(schema, 'minItems', ITEMS_MAX, path) ?? 0
    const most = count(schema, 'maxItems', ITEMS_MAX, path)
    if (most !== null && most < least) throw new SchemaError(path, '"maxItems" is below "minItems"')
    if (schema['prefixItems'] !== undefined) return this.#tuple(schema, least, most, place)
    if (most === 0 || (schema['items'] === false && least === 0)) return literal('[]')
    const item = this.#schema(schema['items'] ?? true, this.#inside(place, 'items'))
    const more = repeated(`(", " ${item})`, Math.max(0, least - 1), most === null ? null : most - 1)
    const items = `${item} ${more}`
    return this.#rules.add(`"[" ${least === 0 ? `(${items})?` : items} "]"`, path)
  }

  /** Items of their own first; more only where `items` says so, or there must be. */
  #tuple(schema: Schema, least: number, most: number | null, place: Place): string {
    const { path } = place
    const first = schema['prefixItems']
    if (!Array.isArray(first)) throw new SchemaError(path, '"prefixItems" is no list')
    const own = first.slice(0, most ?? first.length)
    const [fewer, more] = [Math.max(0, least - own.length), most === null ? null : most - own.length]
    const items = schema['items'] ?? fewer > 0
    let tail = ''
    if (items !== false && more !== 0) {
      const item = this.#schema(items, this.#inside(place, 'items'))
      tail = own.length > 0 ? repeated(`(", " ${item})`, fewer, more)
        : `(${item} ${repeated(`(", " ${item})`, Math.max(0, fewer - 1), more === null ? null : more - 1)})${fewer === 0 ? '?' : ''}`
    } else if (fewer > 0) throw new SchemaError(path, `nothing satisfies it: "minItems" is ${least}`)
    for (let i = own.length - 1; i >= 0; i--) {
      const piece = `${i === 0 ? '' : '", " '}${this.#schema(own[i], this.#inside(place, 'prefixItems', String(i)))} ${tail}`.trimEnd()
      tail = this.#rules.add(i < least ? piece : `(${piece})?`, path)
    }
    return this.#rules.add(`"[" ${tail} "]"`, path)
  }

  #string(schema: Schema, { path }: Place): string {
    const least = count(schema, 'minLength', STRING_LENGTH_MAX, path)
    const most = count(schema, 'maxLength', STRING_LENGTH_MAX, path)
    const { format, pattern } = schema
    if (pattern !== undefined) {
      if (typeof pattern !== 'string') throw new SchemaError(path, '"pattern" is no text')
      const beside = ['format', 'minLength', 'maxLength'].find((keyword) => schema[keyword] !== undefined)
      if (beside !== undefined) throw new SchemaError(path, `"pattern" beside "${beside}" cannot be enforced`)
      return this.#rules.add(`"\\"" (${patternText(this.#rules, pattern, path)}) "\\""`, path)
    }
    if (format !== undefined) {
      const held = typeof format === 'string' ? FORMATS.get(format) : undefined
      if (held === undefined) throw new SchemaError(path, `"format" ${JSON.stringify(format)} cannot be enforced`)
      if (least !== null || most !== null) throw new SchemaError(path, '"format" beside a length cannot be enforced')
      return this.#rules.add(`"\\"" (${held}) "\\""`, path)
    }
    if (least === null && most === null) return this.#rules.basic('string')
    if (most !== null && most < (least ?? 0)) throw new SchemaError(path, '"maxLength" is below "minLength"')
    return this.#rules.add(`"\\"" ${repeated(this.#rules.basic('char'), least ?? 0, most)} "\\""`, path)
  }

  #number(type: 'integer' | 'number', schema: Schema, { path }: Place): string {
    const bounds = boundsOf(schema, path)
    if (bounds.low === null && bounds.high === null) return this.#rules.basic(type)
    const broken = [bounds.low, bounds.high].some((bound) => bound !== null && !Number.isInteger(bound))
    if (type === 'number' && broken) {
      throw new SchemaError(path, 'bounds of a number that are no integers cannot be enforced')
    }
    const made = type === 'integer' ? integersBetween(bounds) : numbersBetween(bounds, this.#rules.basic('frac'))
    if (made === null) throw new SchemaError(path, 'no number lies between the bounds')
    return this.#rules.add(made, path)
  }

  #inside(place: Place, ...names: string[]): Place {
    return { path: below(place.path, ...names), depth: place.depth + 1, followed: new Set() }
  }
}

// ---------------------------------------------------------------- reading keywords

function requiredOf(schema: Schema, path: string): ReadonlySet<string> {
  const required = schema['required'] ?? []
  if (!Array.isArray(required) || !required.every((name) => typeof name === 'string')) {
    throw new SchemaError(path, '"required" is no list of names')
  }
  return new Set(required)
}

function count(schema: Schema, keyword: string, most: number, path: string): number | null {
  const value = schema[keyword]
  if (value === undefined) return null
  if (!Number.isInteger(value) || (value as number) < 0) throw new SchemaError(path, `"${keyword}" is no count`)
  if ((value as number) > most) throw new SchemaError(path, `"${keyword}" over ${most} cannot be enforced`)
  return value as number
}

/** The tighter of a bound and an exclusive one. */
function boundsOf(schema: Schema, path: string): Bounds {
  const read = (keyword: string): number | null => {
    const value = schema[keyword]
    if (value === undefined) return null
    if (typeof value !== 'number') throw new SchemaError(path, `"${keyword}" is no number`)
    return value
  }
  const [low, high] = [read('minimum'), read('maximum')]
  const [above, below] = [read('exclusiveMinimum'), read('exclusiveMaximum')]
  const lowExclusive = above !== null && (low === null || above >= low)
  const highExclusive = below !== null && (high === null || below <= high)
  return { low: lowExclusive ? above : low, high: highExclusive ? below : high, lowExclusive, highExclusive }
}
