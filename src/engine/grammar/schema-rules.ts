/**
 * Owns turning a JSON schema into grammar rules. What a schema says is held, or refused by name with its path
 * (SchemaError); nothing is passed over but annotations.
 *
 * What the rules accept is valid under the schema; it need not be all that is valid: members come in the order of
 * `properties`, and only those named there come at all (`additionalProperties` counts as false; where it is true or a
 * schema and no properties are named, members are free).
 */
import { FORMATS } from './formats.ts'
import { jsonText } from './json-text.ts'
import { integersBetween, numbersBetween } from './number-range.ts'
import type { Bounds } from './number-range.ts'
import { literal, repeated } from './rules.ts'
import type { Rules } from './rules.ts'
import { SchemaError, below } from './schema-error.ts'
import { checkKeywords, isSchema, overlapOf, resolved, typesOf } from './schema-shape.ts'
import type { Schema, Type } from './schema-shape.ts'

export const SCHEMA_DEPTH_MAX = 32
/** The library refuses repetitions of 2,000 parts and more; an item and its comma are up to three. */
export const ITEMS_MAX = 500
export const STRING_LENGTH_MAX = 1_900

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

  constructor(rules: Rules, root: Schema) {
    this.#rules = rules
    this.#root = root
  }

  /** The name of a rule for the whole schema, which must be one of objects. */
  arguments(path: string): string {
    const place: Place = { path, depth: 0, followed: new Set() }
    checkKeywords(this.#root, path)
    const types = typesOf(this.#root, this.#root)
    if (types === null) {
      const bare = Object.keys(this.#root).length === 0
      return this.#object(bare ? { type: 'object' } : this.#root, place)
    }
    if (types.some((type) => type !== 'object')) {
      throw new SchemaError(path, 'the arguments of a tool must be an object')
    }
    return this.#schema(this.#root, place)
  }

  /** The name of a rule or a literal for the whole schema. */
  value(path: string): string {
    return this.#schema(this.#root, { path, depth: 0, followed: new Set() })
  }

  /** An expression without alternatives at its top: a rule's name, or a literal. */
  #schema(schema: unknown, place: Place): string {
    const { path } = place
    if (schema === true) return this.#rules.basic('value')
    if (!isSchema(schema)) throw new SchemaError(path, 'is no schema that can be met')
    if (place.depth > SCHEMA_DEPTH_MAX) throw new SchemaError(path, `is nested deeper than ${SCHEMA_DEPTH_MAX}`)
    checkKeywords(schema, path)
    const made = this.#made(schema, place)
    return schema['nullable'] === true ? this.#rules.add(`${made} | "null"`, path) : made
  }

  #made(schema: Schema, place: Place): string {
    const { path } = place
    if (schema['$ref'] !== undefined) return this.#reference(schema['$ref'], place)
    if (schema['const'] !== undefined || 'const' in schema) return literal(jsonText(schema['const']))
    if (schema['enum'] !== undefined) return this.#enumeration(schema, place)
    const branches = schema['anyOf'] ?? schema['oneOf']
    if (branches !== undefined) return this.#branches(schema, branches, place)
    if (schema['allOf'] !== undefined) return this.#only(schema['allOf'], place)
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
    if (typeof target !== 'string') throw new SchemaError(place.path, '"$ref" is no text')
    if (place.followed.has(target)) throw new SchemaError(place.path, `"$ref" ${target} leads to itself`)
    const known = this.#references.get(target)
    if (known !== undefined) return known
    const found = resolved(this.#root, target, place.path)
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
    const types = typesOf({ type: schema['type'] }, this.#root)
    const overlap = keyword === 'oneOf' ? overlapOf(branches, this.#root) : null
    if (overlap !== null) throw new SchemaError(place.path, `"oneOf": ${overlap}`)
    const made = branches.map((branch: unknown, i) => {
      const path = below(place.path, keyword, i)
      const own = isSchema(branch) ? typesOf(branch, this.#root) : null
      if (types !== null && (own === null || own.some((type) => !types.includes(type)))) {
        throw new SchemaError(path, 'is not of the type that stands beside it')
      }
      return this.#schema(branch, { ...place, path, depth: place.depth + 1 })
    })
    return this.#rules.add([...new Set(made)].join(' | '), place.path)
  }

  #only(parts: unknown, place: Place): string {
    if (!Array.isArray(parts) || parts.length !== 1) {
      throw new SchemaError(place.path, '"allOf" of more than one cannot be enforced')
    }
    return this.#schema(parts[0], { ...place, path: below(place.path, 'allOf', 0), depth: place.depth + 1 })
  }

  // ------------------------------------------------------------- values

  #object(schema: Schema, place: Place): string {
    const { path } = place
    const properties = schema['properties'] ?? {}
    if (!isSchema(properties)) throw new SchemaError(path, '"properties" is no object')
    const required = requiredOf(schema, path)
    const names = Object.keys(properties)
    const missing = required.find((name) => !names.includes(name))
    if (missing !== undefined) {
      throw new SchemaError(path, `"required" names ${JSON.stringify(missing)}, which is no property`)
    }
    const additional = schema['additionalProperties'] ?? false
    if (names.length === 0) return this.#free(additional, place)
    const members = names.map((name) => ({
      text: `${literal(`${JSON.stringify(name)}: `)} ${this.#schema(properties[name], this.#inside(place, 'properties', name))}`,
      required: required.includes(name),
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
    if (most === 0) return literal('[]')
    const item = this.#schema(schema['items'] ?? true, this.#inside(place, 'items'))
    const more = repeated(`(", " ${item})`, Math.max(0, least - 1), most === null ? null : most - 1)
    const items = `${item} ${more}`
    return this.#rules.add(`"[" ${least === 0 ? `(${items})?` : items} "]"`, path)
  }

  #string(schema: Schema, { path }: Place): string {
    const least = count(schema, 'minLength', STRING_LENGTH_MAX, path)
    const most = count(schema, 'maxLength', STRING_LENGTH_MAX, path)
    const { format } = schema
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

function requiredOf(schema: Schema, path: string): string[] {
  const required = schema['required'] ?? []
  if (!Array.isArray(required) || !required.every((name) => typeof name === 'string')) {
    throw new SchemaError(path, '"required" is no list of names')
  }
  return required
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

function isOfType(value: unknown, type: Type): boolean {
  switch (type) {
    case 'null': return value === null
    case 'array': return Array.isArray(value)
    case 'object': return typeof value === 'object' && value !== null && !Array.isArray(value)
    case 'integer': return Number.isInteger(value)
    default: return typeof value === type
  }
}
