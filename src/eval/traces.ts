/**
 * Owns the public traces of whole programs in `data/traces`: their shape, checked as they are read, how one is split into
 * a half to learn from and a half to be scored on, and the waits that were not recorded. What is in them and whose they
 * are is in `data/traces/README.md`. Structure and counts only: no text, no names.
 */
import { readData, readDataLines } from './data-files.ts'
import type { Draw } from './draw.ts'
import type { Tokens, Us } from '../core/units.ts'

/** What a node waits for: places of earlier nodes, all of which must have ended. */
interface After { readonly parents: readonly number[] }

export interface TraceCall extends After {
  readonly kind: 'call'
  readonly promptTokens: Tokens
  /** Of these, what no earlier call of the program had in its prompt or output: to be prefilled if that KV was kept. */
  readonly newTokens: Tokens
  readonly outputTokens: Tokens
}

export interface TraceWait extends After {
  readonly kind: 'tool' | 'human'
  readonly tool: string
  /** Null: not recorded. */
  readonly waitUs: Us | null
}

export type TraceNode = TraceCall | TraceWait

export interface TraceProgram {
  readonly id: string
  /** The trace it is of; all of one trace are programs of one kind. */
  readonly source: string
  /** Leading tokens of its first prompt that all programs of its trace have; 0: not known. */
  readonly sharedTokens: Tokens
  /** From the beginning of its trace; null where that was not recorded. */
  readonly arrivalUs: Us | null
  /** Every parent comes before its children. */
  readonly nodes: readonly TraceNode[]
}

interface Trace {
  readonly source: string
  readonly origin: string
  readonly commit: string
  readonly licence: string
  readonly programs: readonly TraceProgram[]
}

export const TRACES = [
  'hotpotqa-react', 'hotpotqa-reflexion', 'tau-bench-airline', 'tot-game24', 'tot-text', 'lats-hotpot-tree',
  'mooncake-conversation', 'claude-code-weka', 'tracelab-example',
] as const
export type TraceName = typeof TRACES[number]

const MICRO = 1_000_000

/** Throws, naming file and line, where it is not a trace: a file that was cut or edited is no measurement. */
export const loadTrace = (name: TraceName): Trace => traceOf(name, readDataLines('traces', 'programs', `${name}.jsonl`))

/** `lines` of the file of that name. */
export function traceOf(name: TraceName, [head, ...lines]: readonly unknown[]): Trace {
  const { source, origin, commit, licence } = fields(head, `${name}.jsonl:1`)
  const told = [source, origin, commit, licence].map((value) => {
    if (typeof value !== 'string' || value === '') throw new Error(`${name}.jsonl:1: the first line names source, origin, commit and licence`)
    return value
  }) as [string, string, string, string]
  if (told[0] !== name || lines.length === 0) throw new Error(`${name}.jsonl:1: it holds no programs of ${name}`)
  return { source: told[0], origin: told[1], commit: told[2], licence: told[3], programs: lines.map((line, index) => program(line, name, `${name}.jsonl:${index + 2}`)) }
}

function program(line: unknown, source: string, where: string): TraceProgram {
  const { id, shared = 0, arrivalS = null, nodes } = fields(line, where)
  if (typeof id !== 'string' || !Array.isArray(nodes) || nodes.length === 0) throw new Error(`${where}: not a program`)
  return {
    id, source, sharedTokens: count(shared, where), arrivalUs: arrivalS === null ? null : micros(arrivalS, where),
    nodes: nodes.map((node: unknown, place) => nodeOf(node, place, where)),
  }
}

function nodeOf(node: unknown, place: number, where: string): TraceNode {
  const at = `${where}, node ${place}`
  if (!Array.isArray(node)) throw new Error(`${at}: not a node`)
  const [kind, parents, ...rest] = node as readonly unknown[]
  if (!Array.isArray(parents) || parents.some((parent) => count(parent, at) >= place)) throw new Error(`${at}: its parents do not come before it`)
  if (kind === 'call') {
    const [promptTokens, newTokens, outputTokens] = [count(rest[0], at), count(rest[1], at), count(rest[2], at)]
    if (promptTokens === 0 || newTokens > promptTokens) throw new Error(`${at}: ${newTokens} new tokens of ${promptTokens}`)
    return { kind, parents: parents as number[], promptTokens, newTokens, outputTokens }
  }
  const [tool, seconds] = rest
  if ((kind !== 'tool' && kind !== 'human') || typeof tool !== 'string') throw new Error(`${at}: neither call, tool nor human`)
  return { kind, parents: parents as number[], tool, waitUs: seconds === null ? null : micros(seconds, at) }
}

function fields(value: unknown, where: string): Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${where}: not an object`)
  return value as Record<string, unknown>
}

function count(value: unknown, where: string): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0) throw new Error(`${where}: ${String(value)} is not a count`)
  return value
}

function micros(value: unknown, where: string): Us {
  if (typeof value !== 'number' || !(value >= 0 && value < 1e9)) throw new Error(`${where}: ${String(value)} is not a time in seconds`)
  return Math.round(value * MICRO)
}

interface Halves { readonly learn: readonly TraceProgram[]; readonly score: readonly TraceProgram[] }

/**
 * Lines 2, 4, 6 ... of the file to learn from, lines 3, 5, 7 ... to score: the lines are in the order of hashed ids, so
 * this is as good as chance and needs none. A trace of one program has no halves: it is learned from and scored on.
 */
export function halvesOf({ programs }: { readonly programs: readonly TraceProgram[] }): Halves {
  if (programs.length === 1) return { learn: programs, score: programs }
  return { learn: programs.filter((_, at) => at % 2 === 0), score: programs.filter((_, at) => at % 2 === 1) }
}

// ---------------------------------------------------------------- waits that were not recorded

/** Draws a wait for a node without one. */
type SampleWait = (node: TraceWait, draw: Draw) => Us

const TABLE_TOOL_US_MAX = 10_000

/**
 * A Wikipedia lookup takes one of the 24 times that `lats-hotpot-tree` recorded of live ones; a person (tau-bench had a
 * model play one) one of those between the turns of `mooncake-conversation`; any other tool, which in tau-bench is a
 * lookup in memory, up to 10 ms, which nobody measured.
 */
export function waitSampler(): SampleWait {
  const wiki = recorded('lats-hotpot-tree', 'tool').filter((waitUs) => waitUs > 0)
  const person = recorded('mooncake-conversation', 'human')
  return ({ kind, tool }, draw) => kind === 'human' ? draw.pick(person)
    : tool.startsWith('wiki_') ? draw.pick(wiki)
    : draw.below(TABLE_TOOL_US_MAX)
}

const recorded = (name: TraceName, kind: TraceWait['kind']): readonly Us[] => loadTrace(name).programs
  .flatMap(({ nodes }) => nodes.flatMap((node) => (node.kind === kind && node.waitUs !== null ? [node.waitUs] : [])))

// ---------------------------------------------------------------- arrivals

/** Recorded arrivals of single requests at a public service: `code` comes in bursts, `conv` nearly as by chance. */
type ArrivalTrace = 'azure2023-code' | 'azure2023-conv'

/**
 * When each of `count` programs arrives, the first at 0. `poisson`: by chance, at that mean; `burst`: all at once; else
 * the gaps of a recorded trace in their order from a drawn place on, stretched to that mean.
 */
export function arrivalsUs(how: 'poisson' | 'burst' | ArrivalTrace, count: number, meanUs: Us, draw: Draw): readonly Us[] {
  const gaps = how === 'poisson' || how === 'burst' ? null : recordedGaps(how)
  const begin = gaps === null ? 0 : draw.below(gaps.length)
  const times: Us[] = []
  for (let at = 0, timeUs = 0; at < count; at += 1) {
    times.push(timeUs)
    if (how === 'burst') continue
    timeUs += Math.round(meanUs * (gaps === null ? draw.exponential(1) : gaps[(begin + at) % gaps.length] ?? 0))
  }
  return times
}

/** In units of their mean. */
function recordedGaps(name: ArrivalTrace): readonly number[] {
  const { gapsMs } = readData<{ readonly gapsMs: readonly number[] }>('traces', 'arrivals', `${name}.json`)
  const meanMs = gapsMs.reduce((sum, gap) => sum + gap, 0) / gapsMs.length
  return gapsMs.map((gap) => gap / meanMs)
}
