/**
 * The driver and the core before engines whose ledger forgives nothing: many programs in little memory, with waits,
 * hang-ups, failures and deaths. Every command must make sense to the engine, every call must come to its end, and
 * nothing may be left on the device that the core does not know of.
 */
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import { Driver } from '../../src/driver/driver.ts'
import { recover } from '../../src/driver/recover.ts'
import { systemClock, systemIds } from '../../src/driver/system.ts'
import { createScriptedEngine, type ScriptedEngine } from '../../src/engines/scripted.ts'
import { readScript } from '../../src/engines/script-file.ts'
import { inThread } from '../../src/store/snapshot-thread.ts'
import { openStore } from '../../src/store/store.ts'
import { follow, submission, until, type Answer, type Message } from '../driver/house.ts'
import { pause } from './listener.ts'

const WORDS = Array.from({ length: 40 }, (_, index) => `w${index}`).join(' ')
const ITEMS = [
  { match: 'step', text: 'thinking about it ', toolCalls: [{ name: 'look', arguments: { at: 'x' } }] },
  { match: 'fails once', text: WORDS, fail: 'retryable', failAfterTokens: 10 },
  { match: 'dies once', text: WORDS, fail: 'lost', failAfterTokens: 10 },
  { text: WORDS },
]

interface House {
  readonly driver: Driver
  readonly engines: readonly ScriptedEngine[]
  /** How often each kind of fact was shown. */
  readonly seen: Map<string, number>
  readonly fatal: Error[]
  readonly stopped: Promise<Error>
  close(): Promise<void>
}

async function house(shapes: readonly Record<string, unknown>[], core: Partial<CoreConfig>): Promise<House> {
  const fatal: Error[] = []
  let stop: (error: Error) => void = () => undefined
  const stopped = new Promise<Error>((resolve) => { stop = resolve })
  const dir = await mkdtemp(join(tmpdir(), 'stress-'))
  const config = { ...CORE_DEFAULTS, attemptsMax: 20, ...core }
  const store = openStore(join(dir, 'data'), {
    onFailure: (error) => fatal.push(error), onLoss: ({ id, why }) => fatal.push(new Error(`${id}: ${why}`)), digestFile: () => Promise.resolve(null),
    imagesDir: join(dir, 'images'), imageBytesMax: config.hostBytesMax, bodyBytesMax: 1 << 26, logRetentionUs: 0,
    makeSnapshot: inThread(new URL('../../src/snapshot-worker.js', import.meta.url)),
  })
  const recovered = recover(config, store.log)
  const clock = systemClock(recovered.core.nowUs, recovered.core.wallOffsetUs)
  const engines = shapes.map((shape, index) => createScriptedEngine({
    id: `e${index}`,
    script: readScript({
      models: ['m'], promptTokensPerSecond: 8_000, tokensPerSecond: 800, rejoinMs: 60, leaseMs: 200, items: ITEMS, ...shape,
    }),
  }))
  const onFatal = (error: Error): void => {
    fatal.push(error)
    stop(error)
  }
  const driver = new Driver(
    { clock, ids: systemIds, log: store.log, bodies: store.bodies, images: store.images, engines },
    { checkEveryTurns: 1, onFatal, storeFailure: 'refuse', snapshotEveryFacts: 500 }, recovered,
  )
  const seen = new Map<string, number>()
  driver.watch(({ fact }) => seen.set(fact.kind, (seen.get(fact.kind) ?? 0) + 1))
  await driver.start()
  const alive = setInterval(() => undefined, 1_000)
  await until(() => [...driver.core.engines.values()].filter(({ stage }) => stage === 'joined').length === shapes.length)
  return { driver, engines, seen, fatal, stopped, async close() {
    clearInterval(alive)
    await driver.stop()
    await store.close()
    await rm(dir, { recursive: true })
  } }
}

/** A call that comes while no engine is there is told to come again. */
async function ask({ driver, fatal }: House, ...call: Parameters<typeof submission>): Promise<Answer> {
  for (;;) {
    const answer = await follow(driver.submit(submission(...call)))
    const comesAgain = answer.last.kind === 'refused' && answer.last.code === 'engine_unavailable'
    if (!comesAgain || fatal.length > 0) return answer
    await pause(30)
  }
}

/** `steps` calls with a tool between them, and a last answer. */
async function agent(house: House, number: number, steps: number, last: string, waitMs: (step: number) => number): Promise<string> {
  const messages: Message[] = [{ role: 'user', content: `step by step, agent ${number}: ${'context '.repeat(20 + 7 * (number % 5))}` }]
  for (let step = 0; step < steps; step += 1) {
    const answer = await ask(house, messages, { program: `p${number}` })
    if (answer.last.kind !== 'done' || answer.last.finish !== 'tool_calls') return `agent ${number}, step ${step}: ${JSON.stringify(answer.last)}`
    const id = `call_${answer.first?.call ?? ''}_0`
    const called = answer.toolCalls[0] as { name: string; arguments: string }
    messages.push({ role: 'assistant', content: answer.text, toolCalls: [{ id, ...called }] })
    await pause(waitMs(step))
    messages.push({ role: 'tool', content: step === steps - 1 ? last : `step on with ${'result '.repeat(10)}`, toolCallId: id })
  }
  const answer = await ask(house, messages, { program: `p${number}`, final: true })
  return answer.last.kind === 'done' && answer.text === WORDS ? 'fine' : `agent ${number}, last: ${JSON.stringify(answer.last)} ${JSON.stringify(answer.text)}`
}

const LANES = { contextTokens: 512, runningMax: 4, memory: { granuleTokens: 512, granules: 4, sequences: 4 } }
const BLOCKS = { contextTokens: 512, runningMax: 6, memory: { granuleTokens: 16, granules: 70, sequences: 12 } }

for (const [name, shapes, core, happens] of [
  ['lanes, deciding by cost', [LANES], { hostBytesMax: 600_000 }, ['kv.moved', 'engine.lost']],
  ['lanes, always to host', [LANES], { residency: 'always-offload' }, ['kv.moved', 'kv.resume.ready']],
  ['lanes, always dropped', [LANES], { residency: 'always-discard' }, ['kv.discarded', 'call.preempted']],
  ['lanes, least recently used', [LANES], { residency: 'lru-host', order: 'plas', hostBytesMax: 300_000 }, ['kv.moved', 'kv.discarded']],
  ['lanes without a lower tier', [{ ...LANES, residency: false, preempt: false }], {}, ['kv.preserved', 'kv.discarded']],
  ['blocks', [BLOCKS], { grantTokens: 16 }, ['call.granted', 'kv.preserved']],
  ['an engine that keeps its own counsel', [{ memory: null, runningMax: 3 }], {}, ['call.retried']],
  ['two engines', [LANES, BLOCKS], { hostBytesMax: 600_000, residency: 'always-offload' }, ['kv.moved', 'engine.lost']],
] as const) {
  test(`many programs come to their end without one command that makes no sense: ${name}`, async () => {
    const at = await house(shapes, core as Partial<CoreConfig>)
    const lasts = ['go on', 'fails once', 'go on', name === 'lanes, deciding by cost' || name === 'two engines' ? 'dies once' : 'go on']
    const agents = Promise.all(Array.from({ length: 12 }, (_, number) => (
      agent(at, number, 1 + (number % 4), lasts[number % lasts.length] ?? '', (step) => (number * 37 + step * 53) % 120)
    )))
    // Who stopped answers nobody.
    const ends = await Promise.race([agents, at.stopped.then((error) => [`the driver stopped: ${String(error)}`])])
    const breaches = at.engines.flatMap((engine) => engine.breaches)
    const running = [...at.driver.core.engines.values()].flatMap((engine) => [...engine.running])
    await at.close()
    assert.deepEqual(at.fatal.map(String), [])
    assert.deepEqual(breaches, [])
    assert.deepEqual(ends.filter((end) => end !== 'fine'), [])
    assert.deepEqual(running, [])
    assert.deepEqual(happens.filter((kind) => !at.seen.has(kind)), [], 'what this test is for did not happen')
  })
}
