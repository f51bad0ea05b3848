/**
 * Owns the check of what an engine process says: JSON of unknown shape in, an event of `protocol/engine.ts` out, or
 * BrokenEvent; OtherProtocol where a greeting is of another version, whatever else is in it. Checks shape and bounds; whether an event fits what was asked is the adapter's business.
 */
import { ENGINE_PROTOCOL, type EngineEvent, type WireImagePiece } from '../protocol/engine.ts'

export class BrokenEvent extends Error {}
export class OtherProtocol extends Error {}

type Check = (value: unknown) => boolean
type Kind = EngineEvent['kind']

const text: Check = (value) => typeof value === 'string'
const id: Check = (value) => typeof value === 'string' && value !== ''
const count: Check = (value) => Number.isSafeInteger(value) && Number(value) >= 0
const positive: Check = (value) => count(value) && value !== 0
const flag: Check = (value) => typeof value === 'boolean'
const oneOf = (...choices: readonly string[]): Check => (value) => typeof value === 'string' && choices.includes(value)
const orNull = (check: Check): Check => (value) => value === null || check(value)
const list = (item: Check): Check => (value) => Array.isArray(value) && value.every(item)
type Fields = Readonly<Record<string, Check>>
const object = (fields: Fields): Check => (value) => isObject(value) && wrongField(value, fields) === null

const origin = oneOf('prefilled', 'decoded')
const attempt = { call: id, attempt: count }
const run = { ...attempt, epoch: count }
const report = object({
  usefulResidentUs: count, usefulWorkUs: count, recomputedResidentUs: count, recomputedWorkUs: count,
  tailPrefilled: count, tailDecoded: count, outputTokens: count, recomputedTokens: count,
  computedTokens: count, reusedTokens: count,
})
const speeds = object({
  prefillNsPerToken: count, decodeBaseNs: count, decodeRowNs: count, copyOutNsPerToken: count, copyInNsPerToken: count,
})
const engine = object({
  library: text, gpu: orNull(text), fallback: orNull(text), cpuKernel: text, modelDigest: id, lanes: positive, laneTokens: positive, kvBytesPerToken: positive,
  contextTokens: positive, imageKey: id, speeds, can: object({ trim: flag, copy: flag, image: flag }),
  exact: object({ answer: oneOf('yes', 'no', 'unknown'), because: text }),
})
const textPart = object({ kind: oneOf('text', 'reasoning'), text })
const toolCallPart = object({ kind: oneOf('toolCall'), index: count, name: orNull(text), arguments: text })
const chance = { bytes: list(count), logprob: (value: unknown) => typeof value === 'number' }
const logprobs = list(object({ ...chance, top: list(object(chance)) }))
const withLogprobs = object({ kind: oneOf('text'), text, logprobs })
const part: Check = (value) => (isObject(value) && 'logprobs' in value ? withLogprobs(value) : textPart(value)) || toolCallPart(value)

type FieldOf<K extends Kind> = Exclude<keyof Extract<EngineEvent, { kind: K }>, 'kind'>

const FIELDS: { readonly [K in Kind]: Readonly<Record<FieldOf<K>, Check>> } = {
  alive: { batchMs: count, memoryBytes: count },
  welcome: { protocol: count, engine },
  engine: { engine },
  measured: {
    call: id, promptTokens: positive, renderingWon: orNull(text),
    matched: orNull(object({ record: id, tokens: count })),
  },
  unmeasurable: { call: id, code: id, why: text },
  tokens: { ...attempt, index: count, tokens: list(count), parts: list(part) },
  progress: { speeds: orNull(speeds), calls: list(object({ ...run, report })) },
  paused: { ...run, report },
  finished: {
    ...run, report, finish: oneOf('stop', 'length', 'tool_calls'),
    parts: object({ waitUs: count, recomputeUs: count, prefillUs: count, decodeUs: count }),
    spans: list(object({ tokens: positive, origin, digest: id })), toolCalls: list(object({ name: id })),
    resume: oneOf('none', 'exact', 'recomputed'), promptTokens: count, outputTokens: count, cachedTokens: count,
  },
  failed: { ...run, why: text, retryable: flag },
  moved: { move: id, bytes: positive, digest: id, copyUs: count },
  moveFailed: { move: id, why: text, sourceLost: flag },
  refused: { what: text, why: text },
}

/** Binary parts that come with it. */
const BINARY_PARTS: Partial<Record<Kind, number>> = { measured: 1, finished: 1 }

export function readEvent(message: unknown, bin: readonly Uint8Array[]): EngineEvent {
  if (!isObject(message)) throw new BrokenEvent('it sent what is no object')
  const { kind } = message
  if (typeof kind !== 'string' || !isKind(kind)) {
    throw new BrokenEvent(`it sent an event that does not exist: ${JSON.stringify(kind)}`)
  }
  const { protocol } = message
  if (kind === 'welcome' && count(protocol) && protocol !== ENGINE_PROTOCOL) throw new OtherProtocol(`it speaks protocol ${String(protocol)}, not ${ENGINE_PROTOCOL}`)
  const wrong = wrongField(message, FIELDS[kind])
  if (wrong !== null) throw new BrokenEvent(`it sent ${kind} with a wrong ${wrong}`)
  const parts = BINARY_PARTS[kind] ?? 0
  if (bin.length !== parts) throw new BrokenEvent(`it sent ${kind} with ${bin.length} binary parts, not ${parts}`)
  // Every field was checked by the table above, which the compiler holds against the type.
  return message as unknown as EngineEvent
}

/** Null where it is something else. */
export function readPiece(message: unknown, bin: readonly Uint8Array[]): WireImagePiece | null {
  if (!isObject(message) || message['kind'] !== 'imagePiece') return null
  const { move, offset } = message
  if (typeof move !== 'string' || typeof offset !== 'number' || !count(offset) || bin.length !== 1) throw new BrokenEvent('it sent a piece of an image that is none')
  return { kind: 'imagePiece', move, offset }
}

const isKind = (kind: string): kind is Kind => Object.hasOwn(FIELDS, kind)

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

function wrongField(value: Record<string, unknown>, fields: Readonly<Record<string, Check>>): string | null {
  for (const [name, check] of Object.entries(fields)) if (!check(value[name])) return name
  return null
}
