/**
 * Owns what settings are worth: whether a model is exact with them, and how fast it decodes and prefills. For who
 * chooses among settings; nobody else uses the model meanwhile.
 */
import type { WireWeight } from '../protocol/engine.ts'
import { Lanes } from './lanes.ts'
import type { Llama, Row } from './llama/llama.ts'
import { Probe } from './probe.ts'
import type { Exact } from './probe.ts'

const PREFILL_TOKENS = 256
const DECODE_LANES_MAX = 4
const DECODES = 16
const REPEATS = 3

/** `known`: what the probe has said before; null: it is asked now. All lanes are empty before and after. */
export async function weigh(llama: Llama, chunkTokens: number, known: Exact | null): Promise<WireWeight> {
  return { exact: known ?? await ask(llama, chunkTokens), ...await speedsOf(llama, chunkTokens) }
}

async function ask(llama: Llama, chunkTokens: number): Promise<Exact> {
  const probe = new Probe(llama, new Lanes(llama.info.lanes), chunkTokens)
  if (!probe.canAdvance()) return { answer: 'unknown', because: 'the probe needs two lanes' }
  for (;;) {
    const found = await probe.advance()
    if (found !== null) return found
  }
}

/** The best of some repeats: what else the machine does makes it slower, never faster. */
async function speedsOf(llama: Llama, chunkTokens: number): Promise<Omit<WireWeight, 'exact'>> {
  const lanes = Math.min(DECODE_LANES_MAX, llama.info.lanes)
  let prefillMs = Infinity
  let decodeMs = Infinity
  for (let repeat = 0; repeat < REPEATS; repeat++) {
    prefillMs = Math.min(prefillMs, await timed(async () => await prefill(llama, chunkTokens)))
    for (let lane = 1; lane < lanes; lane++) llama.copyLane(0, lane)
    decodeMs = Math.min(decodeMs, await timed(async () => await decode(llama, lanes)))
    for (let lane = 0; lane < lanes; lane++) llama.cut(lane, 0)
  }
  return { prefillTokensPerS: (PREFILL_TOKENS / prefillMs) * 1_000, decodeTokensPerS: ((DECODES * lanes) / decodeMs) * 1_000 }
}

async function prefill(llama: Llama, chunkTokens: number): Promise<void> {
  for (let done = 0; done < PREFILL_TOKENS;) {
    const left = PREFILL_TOKENS - done
    const count = left - chunkTokens === 1 ? chunkTokens - 1 : Math.min(left, chunkTokens)
    await llama.decode(Array.from({ length: count }, (_, i) => row(0, done + i, i === count - 1)))
    done += count
  }
}

async function decode(llama: Llama, lanes: number): Promise<void> {
  for (let step = 0; step < DECODES; step++) {
    await llama.decode(Array.from({ length: lanes }, (_, lane) => row(lane, PREFILL_TOKENS + step, true)))
  }
}

async function timed(work: () => Promise<void>): Promise<number> {
  const begunMs = performance.now()
  await work()
  return performance.now() - begunMs
}

const row = (lane: number, position: number, logits: boolean): Row => ({ token: (position * 89 + 7) % 200, position, lane, logits })
