/** Owns the first measure of an engine's speed, before anybody runs: a few batches in lane 0 and a State out and in. */
import type { Llama, Row } from './llama/llama.ts'
import type { Calibration } from './speeds.ts'

const PREFILL_TOKENS = 32
const DECODE_ROWS_MAX = 4

/** All lanes are empty before and after. */
export async function calibrate(llama: Llama): Promise<Calibration> {
  const timed = async (rows: readonly Row[]): Promise<number> => {
    const begunMs = performance.now()
    await llama.decode(rows)
    return (performance.now() - begunMs) * 1e6
  }
  const tokens = Math.min(PREFILL_TOKENS, llama.info.batchTokens, Math.floor(llama.info.laneTokens / 2))
  const prefill = Array.from({ length: tokens }, (_, i) => row(i, 0, i === tokens - 1))
  // The first batch warms caches and threads.
  await timed(prefill)
  llama.cut(0, 0)
  const prefillNs = await timed(prefill)

  const begunMs = performance.now()
  const blob = llama.stateBytes(0)
  const copiedMs = performance.now()
  const lanes = Math.min(llama.info.lanes, DECODE_ROWS_MAX)
  for (let lane = 1; lane < lanes; lane++) llama.loadState(lane, blob)
  const loadedMs = performance.now()

  await timed([row(tokens, 0, true)])
  const decodeOneNs = await timed([row(tokens + 1, 0, true)])
  const many = Array.from({ length: lanes }, (_, lane) => row(lane === 0 ? tokens + 2 : tokens, lane, true))
  const decodeManyNs = await timed(many)
  for (let lane = 0; lane < lanes; lane++) llama.cut(lane, 0)
  const copyOutNsPerToken = ((copiedMs - begunMs) * 1e6) / tokens
  return {
    prefillNsPerToken: prefillNs / tokens,
    decodeOneNs,
    decodeManyNs,
    rows: lanes,
    copyOutNsPerToken,
    copyInNsPerToken: lanes > 1 ? ((loadedMs - copiedMs) * 1e6) / (tokens * (lanes - 1)) : copyOutNsPerToken,
  }
}

const row = (position: number, lane: number, logits: boolean): Row => ({ token: position % 64, position, lane, logits })
