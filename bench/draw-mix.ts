/**
 * Owns how the mix came to be: programs drawn from the shapes of public traces (`data/traces`), scaled to the model and
 * the lanes. Prints `data/mix/mix.json`; a test draws it again. No policy and no measurement goes into it.
 */
import { pathToFileURL } from 'node:url'
import { readData } from '../src/eval/data-files.ts'
import { Draw } from '../src/eval/draw.ts'
import type { Mix, PlannedCall, PlannedProgram, ProgramKind, WaitClass } from '../src/eval/mix.ts'
import { frameTokens } from '../src/eval/task.ts'
import type { ToolName } from '../src/eval/tools.ts'

const DRAW_SEED = 4
const CALLS_MAX = 8

const ENGINE: Mix['engine'] = { lanes: 4, laneTokens: 1_024, hostMiB: 48, kvBytesPerToken: 23_040 }
/** Left free in a lane: counts are estimates. */
const LANE_MARGIN_TOKENS = 70
/** A trace's median context becomes this much of a lane. */
const LANE_SHARE = 0.85

/** The least that a message of the sort is. */
const RESULT_TOKENS_MIN = 34
const NOTES_TOKENS_MIN = 40
const ANSWER_TOKENS_MIN = 24
/** What a forced call comes to: its frame and a short argument. */
const TOOL_CALL_TOKENS = 36

type Shape = readonly [newTokens: number, outputTokens: number, then: 'tool' | 'human' | 'end']
interface Trace { readonly programs: readonly { readonly calls: number; readonly first: readonly Shape[] }[] }

interface Sort {
  readonly kind: ProgramKind
  readonly source: string
  readonly programs: number
  /** The first call of the shape only: a question and its answer. */
  readonly single: boolean
  readonly tools: Readonly<Record<'tool' | 'human', { readonly from: readonly ToolName[]; readonly wait: WaitClass }>>
}

const person = { from: ['ask_person'], wait: 'person' } as const

const SORTS: readonly Sort[] = [
  { kind: 'react', source: 'hotpotqa-react', programs: 4, single: false, tools: { tool: { from: ['search'], wait: 'search' }, human: person } },
  { kind: 'clerk', source: 'tau-bench-airline', programs: 2, single: false, tools: { tool: { from: ['lookup'], wait: 'client-gap' }, human: person } },
  { kind: 'coder', source: 'claude-code-weka', programs: 3, single: false, tools: { tool: { from: ['calculator', 'search', 'lookup'], wait: 'client-gap' }, human: person } },
  { kind: 'talk', source: 'mooncake-conversation', programs: 1, single: false, tools: { tool: person, human: person } },
  { kind: 'chat', source: 'mooncake-conversation', programs: 2, single: true, tools: { tool: person, human: person } },
]

export function drawMix(): Mix {
  return {
    drawSeed: DRAW_SEED,
    engine: ENGINE,
    arrivalMeanMs: 1_500,
    waitDivisor: 10,
    waitMsMax: 10_000,
    seeds: [11, 12, 13, 14, 15],
    programs: SORTS.flatMap(drawSort),
  }
}

function drawSort(sort: Sort): PlannedProgram[] {
  const { programs } = readData<Trace>('traces', `${sort.source}.json`)
  const shapes = programs.map(({ first }) => (sort.single ? first.slice(0, 1) : first.slice(0, CALLS_MAX)))
  const sizes = shapes.map(shapeTokens).sort((a, b) => a - b)
  const scale = ENGINE.laneTokens * LANE_SHARE / (sizes[sizes.length >> 1] ?? 1)
  const draw = Draw.of(DRAW_SEED, sort.kind)
  return draw.shuffled(shapes).slice(0, sort.programs).map((shape, index) => ({
    name: `${sort.kind}-${index + 1}`, kind: sort.kind, source: sort.source, calls: fit(drawCalls(sort, shape, scale, draw)),
  }))
}

const shapeTokens = (shape: readonly Shape[]): number => shape.reduce((sum, [given, made]) => sum + given + made, 0)

function drawCalls(sort: Sort, shape: readonly Shape[], scale: number, draw: Draw): PlannedCall[] {
  const uses = shape.map(([, , then], index) => {
    if (index === shape.length - 1 || then === 'end') return null
    const { from, wait } = sort.tools[then]
    return { tool: draw.pick(from), wait }
  })
  const tools = new Set(uses.flatMap((use) => (use === null ? [] : [use.tool]))).size
  return shape.map(([given, made], index) => {
    const use = uses[index] ?? null
    const least = index === 0 ? frameTokens(tools) + NOTES_TOKENS_MIN : RESULT_TOKENS_MIN
    const answered = uses[index - 1]?.tool === 'calculator' ? RESULT_TOKENS_MIN : Math.round(given * scale)
    return {
      newTokens: Math.max(least, answered),
      outputTokens: use === null ? Math.max(ANSWER_TOKENS_MIN, Math.round(made * scale)) : TOOL_CALL_TOKENS,
      tool: use?.tool ?? null,
      wait: use?.wait ?? null,
    }
  })
}

/** A program longer than a lane is made to fit: what its results are above the least shrinks in proportion. */
function fit(calls: readonly PlannedCall[]): PlannedCall[] {
  const most = ENGINE.laneTokens - LANE_MARGIN_TOKENS
  const total = calls.reduce((sum, call) => sum + call.newTokens + call.outputTokens, 0)
  if (total <= most) return [...calls]
  const floors = calls.map((call, index) => Math.min(call.newTokens, index === 0 ? firstFloor(calls) : RESULT_TOKENS_MIN))
  const spare = calls.reduce((sum, call, index) => sum + call.newTokens - (floors[index] ?? 0), 0)
  const keep = Math.max(0, (spare - (total - most)) / spare)
  return calls.map((call, index) => {
    const floor = floors[index] ?? 0
    return { ...call, newTokens: floor + Math.floor((call.newTokens - floor) * keep) }
  })
}

const firstFloor = (calls: readonly PlannedCall[]): number =>
  frameTokens(new Set(calls.flatMap(({ tool }) => (tool === null ? [] : [tool]))).size) + NOTES_TOKENS_MIN

if (process.argv[1] !== undefined && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.stdout.write(`${JSON.stringify(drawMix(), null, 2)}\n`)
}
