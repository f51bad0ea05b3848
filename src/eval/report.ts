/** Owns what a run comes to in figures, and the tables that show two runs side by side. */
import type { Explanation } from '../core/explain/explain.ts'
import { columns, duration, size } from '../core/explain/explain-text.ts'
import type { MixOutcome, ProgramOutcome } from './mix-run.ts'
import { mean, quantile } from './stats.ts'

export interface MixFigures {
  readonly meanMs: number
  readonly p95Ms: number
  readonly worstMs: number
  /** The longest that one call stood ready and was not served. */
  readonly longestWaitMs: number
  readonly recomputedTokens: number
  /** Copied between device and host, both ways. */
  readonly movedBytes: number
  readonly wallMs: number
  readonly failed: number
}

export const programMs = ({ record }: ProgramOutcome): number => record.endMs - record.startMs

export function figuresOf({ programs, wallMs }: MixOutcome): MixFigures {
  const times = programs.map(programMs)
  const explanations = programs.map(({ explanation }) => explanation)
  return {
    meanMs: mean(times),
    p95Ms: quantile(times, 0.95),
    worstMs: Math.max(...times),
    longestWaitMs: Math.max(0, ...explanations.flatMap(({ calls }) => calls.map(({ parts }) => parts.queue + parts.engineWait))) / 1_000,
    recomputedTokens: sum(explanations, ({ recomputedTokens }) => recomputedTokens),
    movedBytes: sum(explanations, ({ moves }) => sum(moves, ({ bytes }) => bytes)),
    wallMs,
    failed: programs.filter(({ record }) => record.error !== null).length,
  }
}

const sum = <T>(list: readonly T[], of: (item: T) => number): number => list.reduce((total, item) => total + of(item), 0)

const times = (ratio: number): string => (Number.isFinite(ratio) ? `${ratio.toFixed(2)}x` : '')
/** One unit all over, so that figures can be compared at a glance. */
const ms = (value: number): string => `${(value / 1_000).toFixed(1)} s`
const count = (value: number): string => value.toLocaleString('en-US')

/** Above 1 in the last column: the second is better. */
export function comparisonTable(names: readonly [string, string], base: MixFigures, other: MixFigures): string {
  const row = (name: string, show: (value: number) => string, of: (figures: MixFigures) => number): string[] =>
    [name, show(of(base)), show(of(other)), times(of(base) / of(other))]
  return columns([
    ['', names[0], names[1], 'gain'],
    row('mean program time', ms, ({ meanMs }) => meanMs),
    row('p95', ms, ({ p95Ms }) => p95Ms),
    row('longest wait of a call', ms, ({ longestWaitMs }) => longestWaitMs),
    row('all done after', ms, ({ wallMs }) => wallMs),
    ['recomputed tokens', count(base.recomputedTokens), count(other.recomputedTokens), ''],
    ['KV moved', size(base.movedBytes), size(other.movedBytes), ''],
    ...(base.failed + other.failed === 0 ? [] : [['programs that failed', count(base.failed), count(other.failed), '']]),
  ], 'lrrr').join('\n')
}

export interface PairedProgram {
  readonly name: string
  readonly base: ProgramOutcome
  readonly other: ProgramOutcome
  /** Time in the first run over time in the second. */
  readonly gain: number
}

/** Best gain first. */
export function pairPrograms(base: MixOutcome, other: MixOutcome): readonly PairedProgram[] {
  const others = new Map(other.programs.map((program) => [program.record.name, program]))
  return base.programs.flatMap((program) => {
    const same = others.get(program.record.name)
    return same === undefined ? [] : [{ name: program.record.name, base: program, other: same, gain: programMs(program) / programMs(same) }]
  }).sort((a, b) => b.gain - a.gain || (a.name < b.name ? -1 : 1))
}

export function programTable(names: readonly [string, string], pairs: readonly PairedProgram[]): string {
  const rows = pairs.map(({ name, base, other, gain }) => {
    const last = other.record.calls.at(-1)
    const context = (last?.promptTokens ?? 0) + (last?.outputTokens ?? 0)
    return [name, count(other.record.calls.length), count(context), ms(other.record.waitsMs), ms(programMs(base)), ms(programMs(other)), times(gain)]
  })
  return columns([['program', 'calls', 'tokens', 'tools', names[0], names[1], 'gain'], ...rows], 'lrrrrrr').join('\n')
}

const PARTS_SHOWN: readonly (readonly [keyof Explanation['parts'], string])[] = [
  ['queue', 'queue'], ['copy', 'resume: copy'], ['recompute', 'resume: recompute'], ['engineWait', 'engine wait'],
  ['prefill', 'prefill'], ['decode', 'decode'], ['toolWait', 'tool wait'], ['other', 'client'],
]

/** Where one program's time went in both runs. */
export function partsTable(names: readonly [string, string], { base, other }: PairedProgram): string {
  const rows = PARTS_SHOWN
    .filter(([part]) => base.explanation.parts[part] + other.explanation.parts[part] > 0)
    .map(([part, name]) => [name, duration(base.explanation.parts[part]), duration(other.explanation.parts[part])])
  return columns([['', ...names], ...rows, ['total', duration(base.explanation.wallUs), duration(other.explanation.wallUs)]], 'lrr').join('\n')
}
