/**
 * Owns the two shapes of engine: what each declares, how it forms a batch from the calls that run, and what a batch costs.
 *
 *   paged   one batch of everything: a row for each call that generates and what fits of the prompts beside them;
 *           a step takes a + b x new tokens + c x tokens of KV. The granule is a block.
 *   lanes   batches of generating calls, and prefills of one lane, apart: a fit for each; rows of lanes that do not
 *           follow one another cost a gap. The granule is a lane.
 */
import type { Capabilities, EngineSpeeds } from '../core/state.ts'
import type { Tokens, Us } from '../core/units.ts'
import type { Attempt, Need } from './attempt.ts'

export interface Shape {
  readonly kind: 'paged' | 'lanes'
  readonly capabilities: Capabilities
  readonly speeds: EngineSpeeds
  /** Prompt tokens in one batch. */
  readonly chunkTokens: Tokens
  /** Of a batch, of a new token, of a thousand tokens of KV, of a gap between lanes. */
  readonly stepNs: number
  readonly newNs: number
  readonly kvThousandNs: number
  readonly gapNs: number
  readonly copyBytesPerUs: number
  /** Batches that are run without looking up where all who run just generate; orders are obeyed after them. */
  readonly stepsAtOnce: number
  /** Between two reports of progress. */
  readonly reportUs: Us
}

export interface Member { readonly attempt: Attempt; readonly need: Need; readonly tokens: Tokens; readonly costNs: number }

const COMMON = {
  models: ['m'], tokenise: true, rank: true, preempt: true, cancel: true, kvBytesPerToken: 128, sharesBytes: false, copy: true, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'yes', because: 'a token is a function of tokens and origins before it' },
  replayByOrigin: true, progress: true, inventory: true,
} as const satisfies Partial<Capabilities>

interface Size { readonly contextTokens: Tokens; readonly states: number; readonly runningMax: number }

export function lanes({ contextTokens, states, runningMax }: Size): Shape {
  return {
    kind: 'lanes', chunkTokens: 256, stepNs: 12_000_000, newNs: 2_000_000, kvThousandNs: 400_000, gapNs: 3_000_000, copyBytesPerUs: 20, reportUs: 100_000, stepsAtOnce: 1,
    capabilities: {
      ...COMMON, contextTokens, runningMax, imageKey: 'lanes-1',
      memory: { cells: contextTokens * states, granule: contextTokens, sequences: states },
    },
    speeds: { prefillNsPerToken: 2_000_000, decodeBaseNs: 12_000_000, decodeRowNs: 2_000_000, copyOutNsPerToken: 6_400, copyInNsPerToken: 6_400 },
  }
}

/** `states` of full length fit; shorter ones more. */
export function paged({ contextTokens, states, runningMax }: Size): Shape {
  return {
    kind: 'paged', chunkTokens: 512, stepNs: 8_000_000, newNs: 60_000, kvThousandNs: 30_000, gapNs: 0, copyBytesPerUs: 200, reportUs: 100_000, stepsAtOnce: 1,
    capabilities: {
      ...COMMON, contextTokens, runningMax, imageKey: 'paged-1',
      memory: { cells: contextTokens * states, granule: 16, sequences: 256 },
    },
    speeds: { prefillNsPerToken: 60_000, decodeBaseNs: 8_000_000, decodeRowNs: 60_000, copyOutNsPerToken: 640, copyInNsPerToken: 640 },
  }
}

/** The next batch, best rank first; empty where nobody can go on. */
export function batchOf(shape: Shape, attempts: readonly Attempt[], lastWasPrefill: boolean): Member[] {
  const needs = attempts.filter(({ pausing }) => !pausing)
    .map((attempt) => ({ attempt, need: attempt.next() }))
    .filter((one): one is { attempt: Attempt; need: Need } => one.need !== null)
    .sort((a, b) => a.attempt.rank - b.attempt.rank || (a.attempt.start.call < b.attempt.start.call ? -1 : 1))
  const decodes = needs.filter(({ need }) => need.kind === 'decode')
  const prefills = needs.filter(({ need }) => need.kind === 'prefill')
  if (shape.kind === 'paged') return mixed(shape, decodes, prefills)
  const [first] = prefills
  // A call that generates is never held up by more than one chunk.
  const prefillNow = first !== undefined && (decodes.length === 0 || !lastWasPrefill)
  if (prefillNow) return [member(shape, first, Math.min(first.need.tokens, shape.chunkTokens))]
  return decodes.map((one) => member(shape, one, 1))
}

function mixed(shape: Shape, decodes: readonly { attempt: Attempt; need: Need }[], prefills: readonly { attempt: Attempt; need: Need }[]): Member[] {
  const members = decodes.map((one) => member(shape, one, 1))
  let left = shape.chunkTokens
  for (const one of prefills) {
    if (left <= 0) break
    const tokens = Math.min(left, one.need.tokens)
    members.push(member(shape, one, tokens))
    left -= tokens
  }
  return members
}

const member = (shape: Shape, { attempt, need }: { attempt: Attempt; need: Need }, tokens: Tokens): Member =>
  ({ attempt, need, tokens, costNs: tokens * shape.newNs + Math.floor((attempt.kv.tokens * shape.kvThousandNs) / 1_000) })

/** How often this batch can be run again, before somebody in it is done or needs another. */
export function stepsOf({ stepsAtOnce }: Shape, members: readonly Member[], running: number): number {
  if (stepsAtOnce === 1 || members.length < running) return 1
  return members.reduce((least, { attempt, need }) => Math.min(least, need.kind === 'decode' ? attempt.saysAlone : 1), stepsAtOnce)
}

export function batchNs(shape: Shape, members: readonly Member[]): number {
  const rows = members.reduce((sum, { costNs }) => sum + costNs, 0)
  const taken = [...new Set(members.map(({ attempt }) => attempt.lane))].sort((a, b) => a - b)
  const gaps = taken.filter((lane, at) => at > 0 && taken[at - 1] !== lane - 1).length
  return shape.stepNs + rows + gaps * shape.gapNs
}
