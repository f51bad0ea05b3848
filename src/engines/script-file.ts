/**
 * Owns what a script may say about its engine, with the defaults, and the check of one that a person wrote: a list of
 * items, or keys and `items`. The YAML is read by the configuration; here it is data. Faults are named by their place.
 */
import type { EngineMemory } from '../core/state.ts'
import type { Bytes, Tokens } from '../core/units.ts'
import type { ScriptItem } from './script.ts'

export interface Script {
  readonly models: readonly string[]
  readonly items: readonly ScriptItem[]
  readonly contextTokens: Tokens
  readonly runningMax: number
  /** Null: the engine keeps its own counsel about memory, as most do, and says nothing of KV. */
  readonly memory: EngineMemory | null
  /** States go to host and come back. */
  readonly residency: boolean
  readonly preempt: boolean
  readonly tokenise: boolean
  readonly exact: 'yes' | 'no' | 'unknown'
  readonly kvBytesPerToken: Bytes
  readonly promptTokensPerSecond: number
  readonly tokensPerSecond: number
  readonly copyOutTokensPerSecond: number
  readonly copyInTokensPerSecond: number
  /** A hung engine is given up after this. */
  readonly leaseMs: number
  /** A lost engine joins again after this. */
  readonly rejoinMs: number
}

export class ScriptError extends Error {}

const NUMBERS = {
  contextTokens: 2_048, runningMax: 8, kvBytesPerToken: 256, promptTokensPerSecond: 2_000, tokensPerSecond: 100,
  copyOutTokensPerSecond: 200_000, copyInTokensPerSecond: 400_000, leaseMs: 10_000, rejoinMs: 500,
}
const FLAGS = { residency: true, preempt: true, tokenise: true }
const MEMORY = { granuleTokens: 2_048, granules: 8, sequences: 8 }
const ITEM_NUMBERS = ['promptTokensPerSecond', 'tokensPerSecond', 'latencyMs', 'failAfterTokens', 'failTimes'] as const
const ITEM_KEYS: readonly string[] = ['match', 'text', 'toolCalls', 'fail', ...ITEM_NUMBERS]
const FAILS: readonly unknown[] = ['retryable', 'fatal', 'hang', 'lost']
const EXACT = ['yes', 'no', 'unknown'] as const

/** Throws ScriptError for what is no script. */
export function readScript(value: unknown): Script {
  const root = Array.isArray(value) ? { items: value } : record(value, 'script')
  known(root, [...Object.keys(NUMBERS), ...Object.keys(FLAGS), 'models', 'items', 'memory', 'exact'], 'script')
  const models = list(root['models'] ?? ['scripted'], 'models').map((model, index) => text(model, `models[${index}]`))
  if (models.length === 0) throw new ScriptError('models: expected at least one')
  const { exact = 'yes' } = root
  const isExactAnswer = (answer: unknown): answer is Script['exact'] => EXACT.some((one) => one === answer)
  if (!isExactAnswer(exact)) throw new ScriptError(`exact: expected ${EXACT.join(', ')}`)
  return {
    ...mapped(NUMBERS, (fallback, key) => number(root[key] ?? fallback, key, 1)),
    ...mapped(FLAGS, (fallback, key) => flag(root[key] ?? fallback, key)),
    models,
    exact,
    memory: root['memory'] === null ? null : memory(record(root['memory'] ?? MEMORY, 'memory')),
    items: list(root['items'], 'items').map((item, index) => readItem(item, `items[${index}]`)),
  }
}

function memory(from: Record<string, unknown>): EngineMemory {
  known(from, Object.keys(MEMORY), 'memory')
  const { granuleTokens, granules, sequences } = mapped(MEMORY, (fallback, key) => (
    number(from[key] ?? fallback, `memory.${key}`, 1)
  ))
  return { cells: granuleTokens * granules, granule: granuleTokens, sequences }
}

function readItem(item: unknown, place: string): ScriptItem {
  const from = record(item, place)
  known(from, ITEM_KEYS, place)
  const { match, fail } = from
  if (match !== undefined) checkPattern(text(match, `${place}.match`), `${place}.match`)
  if (from['text'] !== undefined) text(from['text'], `${place}.text`)
  for (const key of ITEM_NUMBERS) {
    if (from[key] !== undefined) number(from[key], `${place}.${key}`, key.endsWith('PerSecond') ? 1 : 0)
  }
  if (fail !== undefined && !FAILS.includes(fail)) throw new ScriptError(`${place}.fail: expected ${FAILS.join(', ')}`)
  for (const [index, call] of list(from['toolCalls'] ?? [], `${place}.toolCalls`).entries()) {
    const at = `${place}.toolCalls[${index}]`
    const { name, arguments: given } = record(call, at)
    text(name, `${at}.name`)
    if (typeof given !== 'string') record(given, `${at}.arguments`)
  }
  // Every key was checked above.
  return from as ScriptItem
}

function checkPattern(pattern: string, place: string): void {
  try {
    new RegExp(pattern, 'u')
  } catch (error) {
    throw new ScriptError(`${place}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
  }
}

function known(from: Record<string, unknown>, keys: readonly string[], place: string): void {
  const odd = Object.keys(from).find((key) => !keys.includes(key))
  if (odd !== undefined) throw new ScriptError(`${place}: there is no key ${odd}; there are ${keys.join(', ')}`)
}

function record(value: unknown, place: string): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new ScriptError(`${place}: expected keys and values`)
  }
  return value as Record<string, unknown>
}

function list(value: unknown, place: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new ScriptError(`${place}: expected a list`)
  return value
}

function text(value: unknown, place: string): string {
  if (typeof value !== 'string') throw new ScriptError(`${place}: expected text`)
  return value
}

function number(value: unknown, place: string, min: number): number {
  if (typeof value !== 'number' || !Number.isFinite(value) || value < min) {
    throw new ScriptError(`${place}: expected a number, ${min} or more`)
  }
  return value
}

function flag(value: unknown, place: string): boolean {
  if (typeof value !== 'boolean') throw new ScriptError(`${place}: expected true or false`)
  return value
}

function mapped<Key extends string, In, Out>(
  from: Readonly<Record<Key, In>>, make: (value: In, key: string) => Out,
): Record<Key, Out> {
  return Object.fromEntries(Object.entries<In>(from).map(([key, value]) => [key, make(value, key)])) as Record<Key, Out>
}
