/**
 * Owns the words of an explanation: aligned columns, lengths of time a person reads. Adds nothing to what `explain.ts`
 * found. The parts are rounded together, so that the figures shown add up to the total shown.
 */
import type { CallLine, DecisionLine, Explanation, PartTimes, Waiting } from './explain.ts'
import { PARTS, type Part } from './timeline.ts'
import { MILLISECOND_US, SECOND_US, type Bytes, type MicroCost, type Us } from '../units.ts'

/** Rows of a section that are shown; the JSON has all. */
const ROWS_MAX = 40
const BEHIND_MAX = 5
const BAR_WIDTH = 24

/** In the order a call goes through them. */
const SHOWN: readonly (readonly [Part, string, string])[] = [
  ['queue', 'queue', 'ready, and others were served'],
  ['copy', 'resume: copy', 'its KV was brought back'],
  ['recompute', 'resume: recompute', 'its KV had been dropped and was computed again'],
  ['engineWait', 'engine wait', 'on the engine, between its batches'],
  ['prefill', 'prefill', 'reading new tokens'],
  ['decode', 'decode', 'writing'],
  ['toolWait', 'tool wait', 'its tools ran'],
  ['other', 'client', 'nothing was asked of us'],
]

export function explainText(explained: Explanation): string {
  const sections = [
    heading(explained), division(explained), waitingSection(explained), callSection(explained), decisionSection(explained),
    placementSection(explained), moveSection(explained), eventSection(explained),
  ]
  return sections.filter((lines) => lines.length > 0).map((lines) => lines.join('\n')).join('\n\n') + '\n'
}

function heading(explained: Explanation): string[] {
  const { program, agent, stage, why, wallUs, calls, whole } = explained
  const state = stage === 'open' ? `open for ${duration(wallUs)}` : `${stage} after ${duration(wallUs)}`
  const threads = new Set(calls.map(({ thread }) => thread)).size
  const lines = [`${program}  ${state}, ${count(calls.length, 'call')} in ${count(threads, 'thread')}${agent === null || agent === '' ? '' : `, agent ${agent}`}`]
  if (why !== null) lines.push(`  because: ${why}`)
  if (!whole) lines.push('  The oldest facts of this program are no longer kept: time counts from the oldest that is.')
  return lines
}

function division({ parts, wallUs }: Explanation): string[] {
  const figures = together(parts, wallUs)
  const rows = SHOWN.filter(([part]) => parts[part] > 0).map(([part, name, meaning]) => {
    const percent = wallUs === 0 ? 0 : Math.round(parts[part] * 100 / wallUs)
    const bar = wallUs === 0 ? 0 : Math.round(parts[part] * BAR_WIDTH / wallUs)
    return [name, figures.of(part), `${percent} %`, '█'.repeat(bar).padEnd(BAR_WIDTH), meaning]
  })
  return ['where the time went', ...columns([...rows, ['total', figures.total, wallUs === 0 ? '' : '100 %', '', '']], 'lrrll')]
}

/** One unit for all parts, rounded so that they add up: what rounding leaves over goes to the largest remainders. */
function together(parts: PartTimes, wallUs: Us): { of: (part: Part) => string; total: string } {
  const [grainUs, digits, unit] = wallUs < SECOND_US ? [100, 1, 'ms'] as const : [10 * MILLISECOND_US, 2, 's'] as const
  const total = Math.round(wallUs / grainUs)
  const grains = new Map(PARTS.map((part) => [part, Math.floor(parts[part] / grainUs)]))
  const left = total - [...grains.values()].reduce((sum, value) => sum + value, 0)
  const byRemainder = [...PARTS].sort((a, b) => parts[b] % grainUs - parts[a] % grainUs || PARTS.indexOf(a) - PARTS.indexOf(b))
  for (const part of byRemainder.slice(0, left)) grains.set(part, (grains.get(part) ?? 0) + 1)
  const show = (value: number): string => `${(value / 10 ** digits).toFixed(digits)} ${unit}`
  return { of: (part) => show(grains.get(part) ?? 0), total: show(total) }
}

function waitingSection({ waiting, endUs }: Explanation): string[] {
  if (waiting.length === 0) return []
  return ['what it waits for now', ...waiting.flatMap((each) => waitingText(each, endUs).map((line) => `  ${line}`))]
}

function waitingText(waiting: Waiting, nowUs: Us): string[] {
  const soFar = `(${duration(nowUs - waiting.sinceUs)} so far)`
  switch (waiting.kind) {
    case 'queue':
      return [`${waiting.call} is in the queue ${soFar}${waiting.queued === null ? '' : `: ${waiting.queued.what}`}`, ...behindText(waiting.queued?.behind ?? null)]
    case 'copy':
      return [`${waiting.call} waits for its KV to be copied back to the engine ${soFar}`]
    case 'engine':
      return [`${waiting.call} runs on the engine ${soFar}`]
    case 'tool':
      return [`${waiting.of === 'HUMAN' ? 'a person' : 'a tool'}: ${waiting.toolClass} ${soFar}, asked for by ${waiting.after}`]
    case 'client':
      return [`its client ${soFar}: ${waiting.why}`]
  }
}

function behindText(behind: { readonly programs: readonly string[]; readonly others: number } | null): string[] {
  if (behind === null || behind.programs.length + behind.others === 0) return []
  const named = behind.programs.slice(0, BEHIND_MAX)
  const unnamed = behind.others + behind.programs.length - named.length
  return [`  behind ${[...named, ...(unnamed > 0 ? [`${unnamed} ${named.length > 0 ? 'more' : 'of others'}`] : [])].join(', ')}`]
}

function callSection({ calls, startUs }: Explanation): string[] {
  const head = ['call', 'at', 'queue', 'copy', 'recompute', 'engine', 'prefill', 'decode', 'tokens: prompt', 'kept', 'again', 'out', 'then']
  const rows = calls.slice(0, ROWS_MAX).map((line) => {
    const { parts } = line
    const times = [parts.queue, parts.copy, parts.recompute, parts.engineWait, parts.prefill, parts.decode].map(duration)
    const tokens = [line.promptTokens, line.cachedTokens, line.recomputedTokens, line.outputTokens].map(String)
    return [line.call, offset(line.arrivedUs, startUs), ...times, ...tokens, thenText(line)]
  })
  return section('its calls', calls.length, [head, ...rows], 'lrrrrrrrrrrrl')
}

function thenText({ end, wait }: CallLine): string {
  if (wait === null) return end ?? 'under way'
  const what = wait.of === 'HUMAN' ? 'a person' : 'tool'
  return `${what} ${wait.toolClass}, ${duration(wait.waitUs)}${wait.end === null ? ' so far' : wait.end === 'completed' ? '' : `, ${wait.end}`}`
}

function decisionSection({ decisions, startUs }: Explanation): string[] {
  if (decisions.length === 0) return []
  const rows = decisions.slice(0, ROWS_MAX).map((line) => [
    offset(line.atUs, startUs), line.after ?? '(nobody waits)', line.performed ? line.choice : `${line.choice} (not performed)`, optionsText(line),
    `${duration(line.expectedWaitUs)}`, line.waitUs === null ? '' : duration(line.waitUs), line.because,
  ])
  const head = ['at', 'after', 'chosen', 'costs in engine-seconds', 'wait expected', 'wait was', 'because']
  return section('decisions about its KV', decisions.length, [head, ...rows], 'rlllrrl')
}

const optionsText = ({ options }: DecisionLine): string => options
  .map(({ choice, cost, infeasible }) => `${choice} ${infeasible === null ? units(cost) : `no (${infeasible})`}`)
  .join(', ')

/** One row an engine that was looked at; an arrow marks the one taken. */
function placementSection({ placements, startUs }: Explanation): string[] {
  if (placements.length === 0) return []
  const head = ['at', 'call', 'engine', 'its KV', 'queue', 'prefill', 'transfer', 'critical', 'pressure', 'in all']
  const rows = placements.slice(0, ROWS_MAX).flatMap(({ atUs, call, engine, candidates }) => candidates.map((one, index) => {
    const terms = [one.queueUs, one.prefillUs, one.transferUs, one.criticalUs, one.pressureUs]
    const names = index === 0 ? [offset(atUs, startUs), call] : ['', '']
    return [...names, `${one.engine === engine ? '> ' : '  '}${one.engine}`, one.way, ...[...terms, terms.reduce((sum, us) => sum + us, 0)].map(duration)]
  }))
  return section('where its calls were placed', placements.length, [head, ...rows], 'rlllrrrrrr')
}

function moveSection({ moves, startUs }: Explanation): string[] {
  if (moves.length === 0) return []
  const rows = moves.slice(0, ROWS_MAX).map((move) => [
    offset(move.atUs, startUs), move.direction, `${move.tokens} tokens`, size(move.bytes), duration(move.copyUs),
    move.outcome === 'failed' ? `failed: ${move.why ?? ''}` : move.outcome === 'under way' ? 'under way' : move.forCall === null ? '' : `for ${move.forCall}`,
  ])
  return section('copies of its KV', moves.length, rows, 'rlrrrl')
}

function eventSection({ events, startUs }: Explanation): string[] {
  if (events.length === 0) return []
  const rows = events.slice(0, ROWS_MAX).map(({ atUs, what, subject, why }) => [offset(atUs, startUs), what, subject, why])
  return section('and', events.length, rows, 'rlll')
}

function section(title: string, total: number, rows: readonly (readonly string[])[], align: string): string[] {
  if (total === 0) return []
  const cut = total > ROWS_MAX ? [`  and ${total - ROWS_MAX} more: --json has all`] : []
  return [title, ...columns(rows, align), ...cut]
}

// ---------------------------------------------------------------- figures

/** Rows as aligned text; `align` has one letter a column, l or r. */
export function columns(rows: readonly (readonly string[])[], align: string): string[] {
  const widths = [...align].map((_, column) => Math.max(0, ...rows.map((row) => (row[column] ?? '').length)))
  return rows.map((row) => {
    const cells = row.map((cell, column) => align[column] === 'r' ? cell.padStart(widths[column] ?? 0) : cell.padEnd(widths[column] ?? 0))
    return `  ${cells.join('  ')}`.trimEnd()
  })
}

/** A length of time as a person reads it. */
export function duration(us: Us): string {
  if (us === 0) return '0'
  if (us < MILLISECOND_US) return `${us} µs`
  if (us < 10 * MILLISECOND_US) return `${(us / MILLISECOND_US).toFixed(1)} ms`
  if (us < SECOND_US) return `${Math.floor(us / MILLISECOND_US)} ms`
  if (us < 60 * SECOND_US) return `${(us / SECOND_US).toFixed(2)} s`
  const wholeSeconds = Math.floor(us / SECOND_US)
  const [hours, minutes, rest] = [Math.floor(wholeSeconds / 3600), Math.floor(wholeSeconds / 60) % 60, wholeSeconds % 60]
  const two = (value: number): string => String(value).padStart(2, '0')
  return hours > 0 ? `${hours} h ${two(minutes)} min` : `${minutes} min ${two(rest)} s`
}

const offset = (atUs: Us, startUs: Us): string => `+${duration(atUs - startUs)}`

export function size(bytes: Bytes): string {
  if (bytes < 1 << 10) return `${bytes} B`
  if (bytes < 1 << 20) return `${(bytes / (1 << 10)).toFixed(1)} KiB`
  return bytes < 1 << 30 ? `${(bytes / (1 << 20)).toFixed(1)} MiB` : `${(bytes / (1 << 30)).toFixed(2)} GiB`
}

const units = (cost: MicroCost): string => (cost / 1_000_000).toFixed(cost < 10_000 ? 6 : 3)

const count = (number: number, noun: string): string => `${number} ${noun}${number === 1 ? '' : 's'}`
