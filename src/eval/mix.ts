/**
 * Owns the one checked-in mix of agent programs and what a seed adds to it: when each arrives and how long each tool
 * takes. How the mix was drawn from public traces is in `bench/draw-mix.ts` and `data/mix/README.md`.
 */
import { readData } from './data-files.ts'
import { Draw } from './draw.ts'
import type { ToolName } from './tools.ts'

export type ProgramKind = 'chat' | 'react' | 'clerk' | 'coder' | 'talk'

/** Whose waits a tool's time is drawn from. */
export type WaitClass = 'search' | 'client-gap' | 'person'

/** One call of a program: what it is given, and what it is made to produce. */
export interface PlannedCall {
  /** Given to the model in this call, beyond what the program's earlier calls gave and produced. */
  readonly newTokens: number
  /** Of an answer: at most. Of a tool call: about, since the grammar decides. */
  readonly outputTokens: number
  /** The tool this call is made to call; null: it answers, and the program ends. */
  readonly tool: ToolName | null
  readonly wait: WaitClass | null
}

export interface PlannedProgram {
  readonly name: string
  readonly kind: ProgramKind
  /** The trace its shape was drawn from. */
  readonly source: string
  readonly calls: readonly PlannedCall[]
}

/** The engine the mix is made for. */
export interface MixEngine {
  readonly lanes: number
  readonly laneTokens: number
  readonly hostMiB: number
  /** Of the model the mix is made for. */
  readonly kvBytesPerToken: number
}

export interface Mix {
  readonly drawSeed: number
  readonly engine: MixEngine
  readonly arrivalMeanMs: number
  /** Waits are the traces' divided by this, as calls are shorter here than there. */
  readonly waitDivisor: number
  readonly waitMsMax: number
  /** The seed of the demo, then those of the bench. */
  readonly seeds: readonly number[]
  readonly programs: readonly PlannedProgram[]
}

export const loadMix = (): Mix => readData<Mix>('mix', 'mix.json')

/** What a model makes of the mix: the same texts in its own tokens. */
interface ModelFit {
  readonly engine: MixEngine
  /** Its tokens for one of the model that the mix is made for. */
  readonly tokenScale: number
}

/** The tiny model reads a byte a token, and a token of its KV is 4 layers of 2 heads of 32 numbers, twice. */
const TINY_TOKEN_SCALE = 5
const TINY_KV_BYTES_PER_TOKEN = 1_024

/** Any model but the tiny one is taken as it is: its tokens are about as long as those of the default. */
export function fitTo(mix: Mix, model: string): ModelFit {
  if (model !== 'tiny') return { engine: mix.engine, tokenScale: 1 }
  const { lanes, laneTokens, hostMiB, kvBytesPerToken } = mix.engine
  return {
    tokenScale: TINY_TOKEN_SCALE,
    engine: {
      lanes,
      laneTokens: laneTokens * TINY_TOKEN_SCALE,
      hostMiB: hostMiB * TINY_TOKEN_SCALE * TINY_KV_BYTES_PER_TOKEN / kvBytesPerToken,
      kvBytesPerToken: TINY_KV_BYTES_PER_TOKEN,
    },
  }
}

export interface Arrival {
  readonly program: PlannedProgram
  readonly atMs: number
  /** One for each call; 0 where the call answers. */
  readonly waitsMs: readonly number[]
}

/** Arrivals in order of time: a Poisson process over the programs in a drawn order. */
export function planArrivals(mix: Mix, seed: number): readonly Arrival[] {
  const waits = loadWaits()
  const draw = Draw.of(seed, 'arrivals')
  let atMs = 0
  return draw.shuffled(mix.programs).map((program, index) => {
    if (index > 0) atMs += draw.exponential(mix.arrivalMeanMs)
    const own = Draw.of(seed, program.name)
    const waitsMs = program.calls.map(({ wait }) => (wait === null ? 0 : drawWait(own, waits[wait], mix)))
    return { program, atMs: Math.round(atMs), waitsMs }
  })
}

const drawWait = (draw: Draw, seconds: readonly number[], mix: Mix): number =>
  Math.min(mix.waitMsMax, Math.round(draw.pick(seconds) * 1000 / mix.waitDivisor))

interface WaitTrace { readonly waitSeconds: { readonly tool?: readonly number[]; readonly human?: readonly number[] } }

/** Fifty equally likely values of each class, as seen in the traces. */
function loadWaits(): Readonly<Record<WaitClass, readonly number[]>> {
  const of = (trace: string, kind: 'tool' | 'human'): readonly number[] => readData<WaitTrace>('traces', `${trace}.json`).waitSeconds[kind] ?? []
  return {
    'search': of('lats-hotpot-tree', 'tool'),
    'client-gap': of('claude-code-weka', 'tool'),
    'person': of('mooncake-conversation', 'human'),
  }
}

/** Tokens of a program's context when it ends. */
export const contextTokens = (program: PlannedProgram): number =>
  program.calls.reduce((sum, call) => sum + call.newTokens + call.outputTokens, 0)

interface MixSize {
  readonly contextTokens: number
  /** The contexts against the engine's lanes: one a lane, and by bytes. */
  readonly lanesRatio: number
  readonly laneBytesRatio: number
  /** Against lanes and host budget together: by contexts that fit, and by bytes. */
  readonly budgetRatio: number
  readonly budgetBytesRatio: number
}

export function sizeOf(mix: Mix): MixSize {
  const { lanes, laneTokens, hostMiB, kvBytesPerToken } = mix.engine
  const tokens = mix.programs.reduce((sum, program) => sum + contextTokens(program), 0)
  const hostTokens = hostMiB * 1024 * 1024 / kvBytesPerToken
  const meanTokens = tokens / mix.programs.length
  return {
    contextTokens: tokens,
    lanesRatio: mix.programs.length / lanes,
    laneBytesRatio: tokens / (lanes * laneTokens),
    budgetRatio: mix.programs.length / (lanes + hostTokens / meanTokens),
    budgetBytesRatio: tokens / (lanes * laneTokens + hostTokens),
  }
}
