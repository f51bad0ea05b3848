/**
 * Owns reading the shape of a schema before rules are made of it: which keywords it has, which types it allows, where a
 * reference leads, and whether the branches of a `oneOf` exclude each other.
 */
import { jsonText } from './json-text.ts'
import { SchemaError } from './schema-error.ts'

export type Schema = Readonly<Record<string, unknown>>

const TYPES = ['object', 'array', 'string', 'number', 'integer', 'boolean', 'null'] as const
export type Type = (typeof TYPES)[number]

export const isSchema = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Say nothing about what is valid; `nullable` does, and may stand beside anything. */
const ANNOTATIONS = new Set([
  'title', 'description', 'default', 'examples', 'example', 'deprecated', 'readOnly', 'writeOnly', 'strict',
  '$schema', '$id', '$comment', '$defs', 'definitions', 'nullable',
])

/** What may stand together: those of a type with each other; values alone or with `type`. */
const BY_TYPE: Readonly<Record<string, Type>> = {
  properties: 'object', required: 'object', additionalProperties: 'object',
  items: 'array', prefixItems: 'array', minItems: 'array', maxItems: 'array', uniqueItems: 'array',
  minLength: 'string', maxLength: 'string', format: 'string', pattern: 'string',
  minimum: 'number', maximum: 'number', exclusiveMinimum: 'number', exclusiveMaximum: 'number', multipleOf: 'number',
}
/** Stand for themselves; beside other keywords they are merged with them (`schema-merge.ts`). */
export const COMBINATIONS = ['$ref', 'anyOf', 'oneOf', 'allOf'] as const
const ALONE = ['const', 'enum']

export const isAnnotation = (keyword: string): boolean =>
  (ANNOTATIONS.has(keyword) && keyword !== 'nullable') || keyword.startsWith('x-')

/** Throws where a keyword cannot be enforced, or not beside the others. */
export function checkKeywords(schema: Schema, path: string): void {
  const present = Object.keys(schema).filter((keyword) =>
    schema[keyword] !== undefined && keyword !== 'nullable' && !isAnnotation(keyword))
  for (const keyword of present) {
    if (keyword === 'type' || Object.hasOwn(BY_TYPE, keyword) || ALONE.includes(keyword)) continue
    if (COMBINATIONS.some((known) => known === keyword)) continue
    if (keyword === 'propertyNames' && jsonText(schema[keyword]) === '{"type": "string"}') continue
    throw new SchemaError(path, `"${keyword}" cannot be enforced`)
  }
  const alone = present.find((keyword) => ALONE.includes(keyword))
  const others = present.filter((keyword) =>
    keyword !== alone && !(keyword === 'type' && alone === 'enum') && !COMBINATIONS.some((known) => known === keyword))
  if (alone !== undefined && others.length > 0 && !(alone === 'const' && constFits(schema, others))) {
    throw new SchemaError(path, `"${alone}" beside "${others[0]}" cannot be enforced`)
  }
  const unknown = namedTypes(schema).find((name) => !TYPES.some((type) => type === name))
  if (unknown !== undefined) throw new SchemaError(path, `"type" ${JSON.stringify(unknown)} is no type`)
  if (schema['uniqueItems'] !== undefined && schema['uniqueItems'] !== false) {
    throw new SchemaError(path, '"uniqueItems" cannot be enforced')
  }
  if (schema['multipleOf'] !== undefined && !(schema['multipleOf'] === 1 && schema['type'] === 'integer')) {
    throw new SchemaError(path, '"multipleOf" cannot be enforced')
  }
}

/** A constant beside its own type says nothing more. */
function constFits(schema: Schema, others: readonly string[]): boolean {
  const type = typeOf(schema['const'])
  const fits = namedTypes(schema).some((name) => name === type || (name === 'number' && type === 'integer'))
  return others.length === 1 && others[0] === 'type' && fits
}

/** Null: any. Follows references; the types of a combination are those of its branches. */
export function typesOf(schema: Schema, root: Schema, seen: Set<string> = new Set()): Type[] | null {
  const named = namedTypes(schema)
  if (named.length > 0) {
    const types = TYPES.filter((known) => named.includes(known))
    return types.includes('number') ? types.filter((known) => known !== 'integer') : types
  }
  const target = schema['$ref']
  if (typeof target === 'string') {
    // What was looked at already adds nothing: each is looked at once, however often it is named.
    if (seen.has(target)) return []
    seen.add(target)
    const found = lookUp(root, target)
    return isSchema(found) ? typesOf(found, root, seen) : null
  }
  if ('const' in schema) return [typeOf(schema['const'])]
  if (Array.isArray(schema['enum'])) return [...new Set(schema['enum'].map(typeOf))]
  const branches = schema['anyOf'] ?? schema['oneOf'] ?? schema['allOf']
  if (Array.isArray(branches)) return unionOf(branches, root, seen)
  const present = Object.keys(schema).filter((keyword) => schema[keyword] !== undefined)
  const implied = TYPES.filter((known) => present.some((keyword) => BY_TYPE[keyword] === known))
  return implied.length === 0 ? null : implied
}

function namedTypes({ type }: Schema): readonly unknown[] {
  if (type === undefined) return []
  return Array.isArray(type) ? type : [type]
}

function unionOf(branches: readonly unknown[], root: Schema, seen: Set<string>): Type[] | null {
  const all = branches.map((branch) => isSchema(branch) ? typesOf(branch, root, seen) : null)
  const types = all.flatMap((own) => own ?? [])
  return all.includes(null) ? null : [...new Set(types)]
}

function typeOf(value: unknown): Type {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'array'
  switch (typeof value) {
    case 'string': return 'string'
    case 'boolean': return 'boolean'
    case 'number': return Number.isInteger(value) ? 'integer' : 'number'
    default: return 'object'
  }
}

export function isOfType(value: unknown, type: Type): boolean {
  const own = typeOf(value)
  return own === type || (own === 'integer' && type === 'number')
}

// ---------------------------------------------------------------- references

/** Throws where the reference leads nowhere. */
export function resolved(root: Schema, target: unknown, path: string): unknown {
  if (typeof target !== 'string') throw new SchemaError(path, '"$ref" is no text')
  if (!target.startsWith('#')) throw new SchemaError(path, `"$ref" ${target} leads out of the schema`)
  const found = lookUp(root, target)
  if (found === undefined) throw new SchemaError(path, `"$ref" ${target} leads nowhere`)
  return found
}

function lookUp(root: Schema, target: string): unknown {
  const steps = target.replace(/^#\/?/, '').split('/').filter((step) => step !== '')
  return steps.reduce<unknown>((at, step) => {
    const name = unescaped(step).replaceAll('~1', '/').replaceAll('~0', '~')
    if (typeof at !== 'object' || at === null || !Object.hasOwn(at, name)) return undefined
    return (at as Record<string, unknown>)[name]
  }, root)
}

function unescaped(step: string): string {
  try {
    return decodeURIComponent(step)
  } catch (error) {
    // What is no escape stands for itself.
    if (error instanceof URIError) return step
    throw error
  }
}

// ---------------------------------------------------------------- oneOf

/** Why two branches may both hold for one value that we would write, or null where none do. */
export function overlapOf(branches: readonly unknown[], root: Schema): string | null {
  for (const [i, first] of branches.entries()) {
    for (const [j, second] of branches.slice(i + 1).entries()) {
      if (!apart(first, second, root)) return `branches ${i} and ${i + 1 + j} may hold at once`
    }
  }
  return null
}

function apart(first: unknown, second: unknown, root: Schema): boolean {
  const [a, b] = [followed(first, root), followed(second, root)]
  if (a === null || b === null) return false
  const [left, right] = [typesOrNull(a, root), typesOrNull(b, root)]
  if (left !== null && right !== null && !left.some((type) => right.some((other) => sameKind(type, other)))) return true
  const [here, there] = [valuesOf(a), valuesOf(b)]
  const plain = a['nullable'] !== true && b['nullable'] !== true
  if (here !== null && there !== null && plain) return !here.some((value) => there.includes(value))
  const onlyObjects = [left, right].every((types) => types?.length === 1 && types[0] === 'object')
    && ![a, b].some((one) => COMBINATIONS.some((keyword) => keyword in one))
  return onlyObjects && (tagged(a, b, root) || (demandsMore(a, b) && demandsMore(b, a)))
}

function typesOrNull(schema: Schema, root: Schema): Type[] | null {
  const types = typesOf(schema, root)
  return types !== null && schema['nullable'] === true ? [...types, 'null'] : types
}

const sameKind = (a: Type, b: Type): boolean => a === b || (isNumeric(a) && isNumeric(b))

const isNumeric = (type: Type): boolean => type === 'number' || type === 'integer'

function followed(schema: unknown, root: Schema): Schema | null {
  let at = schema
  for (let steps = 0; isSchema(at) && typeof at['$ref'] === 'string'; steps++) {
    if (steps > TYPES.length * TYPES.length) return null
    at = lookUp(root, at['$ref'])
  }
  return isSchema(at) ? at : null
}

/** The values of an enumeration, as text. */
function valuesOf(schema: Schema): string[] | null {
  if ('const' in schema) return [jsonText(schema['const'])]
  return Array.isArray(schema['enum']) ? schema['enum'].map(jsonText) : null
}

/** A property that both require and whose values differ. */
function tagged(a: Schema, b: Schema, root: Schema): boolean {
  const [left, right] = [propertiesOf(a), propertiesOf(b)]
  return Object.keys(left).filter((name) => requires(a, name) && requires(b, name)).some((name) => {
    const [mine, its] = [followed(left[name], root), followed(right[name], root)]
    const [here, there] = [mine === null ? null : valuesOf(mine), its === null ? null : valuesOf(its)]
    return here !== null && there !== null && !here.some((value) => there.includes(value))
  })
}

/** `a` requires what `b` never writes. */
const demandsMore = (a: Schema, b: Schema): boolean =>
  Object.keys(propertiesOf(a)).some((name) => requires(a, name) && !requires(b, name) && !Object.hasOwn(propertiesOf(b), name))
  && Object.keys(propertiesOf(b)).length > 0

const propertiesOf = (schema: Schema): Schema => isSchema(schema['properties']) ? schema['properties'] : {}

const requires = (schema: Schema, name: string): boolean =>
  Array.isArray(schema['required']) && schema['required'].includes(name)
