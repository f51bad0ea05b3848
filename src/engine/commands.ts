/**
 * Owns the check of what the control plane sends: JSON of unknown shape in, a request of `protocol/engine.ts` out, or
 * why not. Checks shape and bounds only; whether a State or call exists is the loop's business.
 */
import type { EngineRequest } from '../protocol/engine.ts'

type ReadRequest =
  | { readonly ok: true; readonly request: EngineRequest }
  | { readonly ok: false; readonly what: string; readonly why: string }

type Check = (value: unknown) => boolean
type Fields = Readonly<Record<string, Check>>
type Kind = EngineRequest['kind']
type FieldOf<K extends Kind> = Exclude<keyof Extract<EngineRequest, { kind: K }>, 'kind' | 'reign'>

/** Ids are ours and short; a path is the operating system's. */
const ID_CHARACTERS_MAX = 512
const PATH_CHARACTERS_MAX = 4_096
const LIST_ITEMS_MAX = 65_536

const text = (max: number): Check => (value) => typeof value === 'string' && value.length <= max
const id: Check = (value) => text(ID_CHARACTERS_MAX)(value) && value !== ''
const path: Check = (value) => text(PATH_CHARACTERS_MAX)(value) && value !== '' && !String(value).includes('\0')
const anyText: Check = (value) => typeof value === 'string'
const count: Check = (value) => Number.isSafeInteger(value) && Number(value) >= 0
const positive: Check = (value) => count(value) && value !== 0
const whole: Check = (value) => Number.isSafeInteger(value)
const word: Check = (value) => count(value) && Number(value) < 2 ** 32
const oneOf = (...choices: readonly string[]): Check => (value) => typeof value === 'string' && choices.includes(value)
const list = (item: Check): Check => (value) =>
  Array.isArray(value) && value.length <= LIST_ITEMS_MAX && value.every(item)
const object = (fields: Fields): Check => (value) => isObject(value) && wrongField(value, fields) === null

const identity = object({ tenant: anyText, state: id, owner: anyText, epoch: count, reign: count })
const spans = list(object({ id, tokens: positive, origin: oneOf('prefilled', 'decoded') }))
const asVictim = oneOf('pause', 'offload', 'discard')
const orders = list(object({ call: id, rank: whole, grantGranules: count, asVictim }))
const attempt = { call: id, attempt: count }

const FIELDS: { readonly [K in Kind]: Readonly<Record<FieldOf<K>, Check>> } = {
  hello: { protocol: count, leaseMs: positive },
  ping: {},
  measure: { call: id, body: anyText, records: list(id) },
  start: {
    ...attempt, epoch: count, state: id, tenant: anyText, body: anyText, rank: whole, grantGranules: count,
    baseTokens: count, keepTokens: count, recomputeTokens: count,
    replay: oneOf('exact', 'plain'), forced: list(count), seed: word, maxTokens: positive,
  },
  order: { orders },
  pause: attempt,
  cancel: attempt,
  offload: { move: id, state: id, path, spans, identity },
  onboard: { move: id, state: id, path, digest: id, identity },
  discard: { state: id },
  stop: {},
}

export function readRequest(message: unknown, bin: readonly Uint8Array[]): ReadRequest {
  if (!isObject(message)) return { ok: false, what: 'message', why: 'it is not an object' }
  const { kind } = message
  if (typeof kind !== 'string' || !isKind(kind)) {
    return { ok: false, what: 'message', why: `there is no command ${JSON.stringify(kind)}` }
  }
  const wrong = wrongField(message, { reign: count, ...FIELDS[kind] })
  if (wrong !== null) return { ok: false, what: kind, why: `its ${wrong} is missing or not what it must be` }
  // Every field was checked by the table above, which the compiler holds against the type.
  const request = message as unknown as EngineRequest
  const parts = request.kind === 'measure' ? request.records.length : request.kind === 'start' ? 1 : 0
  if (bin.length !== parts) return { ok: false, what: kind, why: `it has ${bin.length} binary parts, not ${parts}` }
  return { ok: true, request }
}

const isKind = (kind: string): kind is Kind => Object.hasOwn(FIELDS, kind)

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function wrongField(value: Record<string, unknown>, fields: Fields): string | null {
  for (const [name, check] of Object.entries(fields)) if (!check(value[name])) return name
  return null
}
