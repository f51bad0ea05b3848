/**
 * Owns saying in one schema what several say at once: the parts of an `allOf`, and a `$ref`, `anyOf` or `oneOf` beside
 * other keywords. `false` is the schema that nothing satisfies, as in JSON Schema itself.
 *
 * Every merge counts towards a bound on the whole, so that no schema multiplies itself out of hand.
 */
import { jsonText } from './json-text.ts'
import { SchemaError } from './schema-error.ts'
import { COMBINATIONS, checkKeywords, isAnnotation, isOfType, isSchema, resolved } from './schema-shape.ts'
import type { Schema, Type } from './schema-shape.ts'

const MERGES_MAX = 5_000
/** References that lead to each other for ever end here. */
const MERGE_DEPTH_MAX = 64

/** How two values of one keyword become one; what is not here must be equal. */
const MEET: Readonly<Record<string, (a: number, b: number) => number>> = {
  minimum: Math.max, exclusiveMinimum: Math.max, minItems: Math.max, minLength: Math.max,
  maximum: Math.min, exclusiveMaximum: Math.min, maxItems: Math.min, maxLength: Math.min,
}

export class SchemaMerge {
  readonly #root: Schema
  #merges = 0

  constructor(root: Schema) {
    this.#root = root
  }

  /** The same in a schema whose combination, where it has one, stands alone and is no `allOf`. */
  plain(schema: unknown, path: string): unknown {
    if (!isSchema(schema)) return schema
    checkKeywords(schema, path)
    const combined = COMBINATIONS.filter((keyword) => schema[keyword] !== undefined)
    const [only] = combined
    const others = Object.keys(schema).filter((keyword) => !isAnnotation(keyword) && keyword !== only)
    if (combined.length === 0 || (combined.length === 1 && others.length === 0 && only !== 'allOf')) return schema
    return this.#both(schema, {}, path, 0)
  }

  #both(a: unknown, b: unknown, path: string, depth: number): Schema | boolean {
    if (a === false || b === false) return false
    if (a === true) return isSchema(b) ? b : this.#none(b, path)
    if (b === true) return isSchema(a) ? a : this.#none(a, path)
    if (!isSchema(a)) return this.#none(a, path)
    if (!isSchema(b)) return this.#none(b, path)
    if (++this.#merges > MERGES_MAX) throw new SchemaError(path, `to put it together takes over ${MERGES_MAX} steps`)
    if (depth > MERGE_DEPTH_MAX) throw new SchemaError(path, 'to put it together leads to itself')
    checkKeywords(a, path)
    checkKeywords(b, path)
    return this.#combined(a, b, path, depth) ?? this.#combined(b, a, path, depth) ?? this.#meet(a, b, path, depth)
  }

  #none(value: unknown, path: string): never {
    throw new SchemaError(path, `${JSON.stringify(value)} is no schema`)
  }

  /** Null: `a` is no combination. */
  #combined(a: Schema, b: Schema, path: string, depth: number): Schema | boolean | null {
    const both = (x: unknown, y: unknown): Schema | boolean => this.#both(x, y, path, depth + 1)
    if (a['nullable'] === true) {
      const { nullable: _, ...rest } = a
      return both({ anyOf: [rest, { type: 'null' }] }, b)
    }
    if (a['$ref'] !== undefined) {
      const { $ref: target, ...rest } = a
      if (isBare(rest) && isBare(b)) return { $ref: target }
      return both(resolved(this.#root, target, path), both(rest, b))
    }
    if (a['allOf'] !== undefined) {
      const { allOf: parts, ...rest } = a
      return listOf(parts, 'allOf', path).reduce<Schema | boolean>((whole, part) => both(whole, part), both(rest, b))
    }
    const keyword = a['anyOf'] !== undefined ? 'anyOf' : a['oneOf'] !== undefined ? 'oneOf' : null
    if (keyword === null) return null
    const { [keyword]: branches, ...rest } = a
    const beside = both(rest, b)
    const made = listOf(branches, keyword, path).map((branch) => both(branch, beside)).filter((branch) => branch !== false)
    return made.length === 0 ? false : made.length === 1 ? made[0] ?? false : { [keyword]: made }
  }

  #meet(a: Schema, b: Schema, path: string, depth: number): Schema | false {
    const merged: Record<string, unknown> = {}
    for (const keyword of new Set([...Object.keys(a), ...Object.keys(b)])) {
      if (isAnnotation(keyword) || PARTS.has(keyword)) continue
      const [mine, its] = [a[keyword], b[keyword]]
      merged[keyword] = mine === undefined ? its : its === undefined ? mine
        : this.#keyword(keyword, mine, its, path, depth)
    }
    Object.assign(merged, this.#members(a, b, path, depth))
    const types = typesBoth(a['type'], b['type'])
    if (types !== null && types.length === 0) return false
    if (types !== null) merged['type'] = types.length === 1 ? types[0] : types
    const values = valuesBoth(a, b)
    if (values === null) return merged
    const fitting = values.filter((value) => types === null || types.some((type) => isOfType(value, type)))
    return fitting.length === 0 ? false : { ...merged, enum: fitting }
  }

  #keyword(keyword: string, mine: unknown, its: unknown, path: string, depth: number): unknown {
    if (keyword === 'items') return this.#both(mine, its, path, depth + 1)
    const meet = MEET[keyword]
    if (meet !== undefined && typeof mine === 'number' && typeof its === 'number') return meet(mine, its)
    if (jsonText(mine) === jsonText(its)) return mine
    throw new SchemaError(path, `"${keyword}" said twice, differently, cannot be enforced`)
  }

  /** A member that only one of them names is, for the other, an additional one. */
  #members(a: Schema, b: Schema, path: string, depth: number): Record<string, unknown> {
    const [left, right] = [objectOf(a, path), objectOf(b, path)]
    const names = [...new Set([...Object.keys(left), ...Object.keys(right)])]
    const properties = Object.fromEntries(names.map((name) => [name, this.#both(
      Object.hasOwn(left, name) ? left[name] : a['additionalProperties'] ?? true,
      Object.hasOwn(right, name) ? right[name] : b['additionalProperties'] ?? true, path, depth + 1)]))
    const required = [a, b].flatMap((one) => one['required'] === undefined ? [] : listOf(one['required'], 'required', path))
    const [mine, its] = [a['additionalProperties'], b['additionalProperties']]
    const additional = mine === undefined ? its : its === undefined ? mine : this.#both(mine, its, path, depth + 1)
    return {
      ...(names.length === 0 ? {} : { properties }),
      ...(required.length === 0 ? {} : { required: [...new Set(required)] }),
      ...(additional === undefined ? {} : { additionalProperties: additional }),
    }
  }
}

/** Merged by more than their own value. */
const PARTS = new Set(['type', 'enum', 'const', 'properties', 'required', 'additionalProperties'])

const isBare = (schema: Schema | boolean): boolean =>
  schema === true || (isSchema(schema) && Object.keys(schema).every(isAnnotation))

function listOf(value: unknown, keyword: string, path: string): unknown[] {
  if (!Array.isArray(value) || value.length === 0) throw new SchemaError(path, `"${keyword}" is no list`)
  return value
}

function objectOf(schema: Schema, path: string): Schema {
  const properties = schema['properties'] ?? {}
  if (!isSchema(properties)) throw new SchemaError(path, '"properties" is no object')
  return properties
}

/** Null: any. */
function typesBoth(a: unknown, b: unknown): Type[] | null {
  if (a === undefined && b === undefined) return null
  const [left, right] = [a ?? b, b ?? a].map((type) => (Array.isArray(type) ? type : [type]) as Type[])
  return (left ?? []).flatMap((type): Type[] => {
    if (right?.includes(type) === true) return [type]
    if (type === 'integer' && right?.includes('number') === true) return [type]
    return type === 'number' && right?.includes('integer') === true ? ['integer'] : []
  })
}

/** The values that both list; null where neither does. */
function valuesBoth(a: Schema, b: Schema): unknown[] | null {
  const [left, right] = [valuesOf(a), valuesOf(b)]
  if (left === null || right === null) return left ?? right
  const texts = new Set(right.map(jsonText))
  return left.filter((value) => texts.has(jsonText(value)))
}

function valuesOf(schema: Schema): unknown[] | null {
  if ('const' in schema) return [schema['const']]
  return Array.isArray(schema['enum']) ? schema['enum'] : null
}

