import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { BrokenEvent, OtherProtocol, readEvent } from '../../src/engines/engine-events.ts'
import { ENGINE_PROTOCOL, type EngineEvent, type WireReport } from '../../src/protocol/engine.ts'

const speeds = { prefillNsPerToken: 1, decodeBaseNs: 1, decodeRowNs: 1, copyOutNsPerToken: 1, copyInNsPerToken: 1 }
const report: WireReport = {
  usefulResidentUs: 1, usefulWorkUs: 1, recomputedResidentUs: 0, recomputedWorkUs: 0, tailPrefilled: 3, tailDecoded: 1, outputTokens: 2, recomputedTokens: 0, computedTokens: 5, reusedTokens: 0,
}
const engine = {
  library: 'l', gpu: null, fallback: null, cpuKernel: 'k', modelDigest: 'd', lanes: 4, laneTokens: 64, kvBytesPerToken: 8, contextTokens: 64, imageKey: 'i', can: { trim: true, copy: true, image: true },
  exact: { answer: 'yes', because: 'b' }, speeds,
} as const
const of = { call: 'c', attempt: 1, epoch: 0 }
const EVENTS: readonly EngineEvent[] = [
  { kind: 'welcome', protocol: ENGINE_PROTOCOL, engine },
  { kind: 'engine', engine },
  { kind: 'measured', call: 'c', promptTokens: 5, matched: { record: 'r', tokens: 2 }, renderingWon: null },
  { kind: 'unmeasurable', call: 'c', code: 'x', why: 'w' },
  {
    kind: 'tokens', call: 'c', attempt: 1, index: 0, tokens: [1],
    parts: [{ kind: 'text', text: 't' }, { kind: 'toolCall', index: 0, name: null, arguments: '' }],
  },
  { kind: 'progress', speeds, calls: [{ ...of, report }] },
  { kind: 'paused', ...of, report },
  {
    kind: 'finished', ...of, finish: 'stop', report, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 1 },
    spans: [{ tokens: 3, origin: 'prefilled', digest: 'd' }], toolCalls: [{ name: 'n' }], resume: 'none', promptTokens: 3, outputTokens: 2, cachedTokens: 0,
  },
  { kind: 'failed', ...of, why: 'w', retryable: true },
  { kind: 'moved', move: 'm', bytes: 1, digest: 'd', copyUs: 1 },
  { kind: 'moveFailed', move: 'm', why: 'w', sourceLost: false },
  { kind: 'refused', what: 'start', why: 'w' },
]
const binOf = (event: EngineEvent): Uint8Array[] => (event.kind === 'measured' || event.kind === 'finished' ? [new Uint8Array(2)] : [])

/** Every path to a value inside, those of list items included. */
function paths(value: unknown, before: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null) return before.length === 0 ? [] : [before]
  const inside = Object.entries(value)
    .flatMap(([key, inner]) => paths(inner, [...before, Array.isArray(value) ? Number(key) : key]))
  return [...(before.length === 0 ? [] : [before]), ...inside]
}

function withPath(value: unknown, [key, ...rest]: readonly (string | number)[], put: unknown): unknown {
  if (key === undefined) return put
  const copy = Array.isArray(value) ? [...value as unknown[]] : { ...value as Record<string, unknown> }
  const held = copy as Record<string | number, unknown>
  held[key] = withPath(held[key], rest, put)
  return copy
}

test('every event is read as it is', () => {
  for (const event of EVENTS) assert.deepEqual(readEvent(event, binOf(event)), event)
})

test('a greeting of another version is known by it, though nothing else in it is as we know it', () => {
  assert.throws(() => readEvent({ kind: 'welcome', protocol: ENGINE_PROTOCOL - 1, engine: { lanes: 4 } }, []), new OtherProtocol('it speaks protocol 1, not 2'))
  assert.throws(() => readEvent({ kind: 'welcome', protocol: ENGINE_PROTOCOL, engine: { lanes: 4 } }, []), BrokenEvent)
})

test('an event with any value inside replaced by one of another kind is broken', () => {
  for (const event of EVENTS) {
    for (const path of paths(event)) {
      for (const odd of [undefined, -1, 1.5, { odd: true }]) {
        assert.throws(() => readEvent(withPath(event, path, odd), binOf(event)), BrokenEvent, `${event.kind} ${path.join('.')} = ${JSON.stringify(odd)}`)
      }
    }
  }
})

test('binary parts too many or too few are broken, and so is what is no event', () => {
  for (const event of EVENTS) assert.throws(() => readEvent(event, [...binOf(event), new Uint8Array(1)]), BrokenEvent)
  for (const event of EVENTS) if (binOf(event).length > 0) assert.throws(() => readEvent(event, []), BrokenEvent)
  for (const odd of [null, 7, 'welcome', [], {}, { kind: 'toString' }, { kind: '__proto__' }, { kind: 'hello' }]) {
    assert.throws(() => readEvent(odd, []), BrokenEvent)
  }
})

test('anything at all is an event or a BrokenEvent, never another error', () => {
  fc.assert(fc.property(fc.anything({ withNullPrototype: true }), fc.constantFrom(...EVENTS), (odd, event) => {
    for (const message of [odd, { ...event, ...(typeof odd === 'object' ? odd : {}) }]) {
      try {
        readEvent(message, binOf(event))
      } catch (error) {
        assert.ok(error instanceof BrokenEvent, String(error))
      }
    }
  }))
})
