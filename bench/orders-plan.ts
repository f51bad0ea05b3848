/**
 * Owns the rows of the bench of orders: which programs are drawn from which trace and half, at which load they arrive, and
 * the engine they run on.
 */
import { Draw } from '../src/eval/draw.ts'
import { arrivalsUs, halvesOf, loadTrace, TRACES, waitSampler, type TraceName, type TraceNode, type TraceProgram } from '../src/eval/traces.ts'
import type { Us } from '../src/core/units.ts'
import type { DrawnProgram } from './virtual-agent.ts'
import type { VirtualSpeeds } from './virtual-engine.ts'

/** Of an 8B model on one accelerator, in round numbers: not measured here. */
export const SPEEDS: VirtualSpeeds = {
  stepUs: 12_000, rowUs: 150, prefillUsPerToken: 100, copyNsPerToken: 6_500, chunkTokens: 512, rows: 8,
}

export const MIX = 'mix'
export const ROWS: readonly string[] = [...TRACES, MIX]
export const LOADS = ['0.9', '1.1', 'burst'] as const
export type Load = typeof LOADS[number]

/** Nobody's wait is longer: else the longest of them are all that is measured. */
const WAIT_US_MAX = 30_000_000

export interface Drawing {
  readonly load: Load
  readonly seed: number
  readonly programsMax: number
  /** No more programs once they have so many calls. */
  readonly callsMax: number
}

const tracesOf = (name: string): readonly TraceName[] => TRACES.filter((trace) => name === MIX || trace === name)

/** Every program of the half that is learned from, once, at load 0.9. */
export function learning(trace: string): readonly DrawnProgram[] {
  const chance = Draw.of(0, trace)
  const programs = chance.shuffled(tracesOf(trace).flatMap((name) => halvesOf(loadTrace(name)).learn))
  return timed('learn', programs, '0.9', chance, chance)
}

/** Programs of the half that is scored, drawn with repetition; the same for a seed whatever the load. */
export function scoring(trace: string, { load, seed, programsMax, callsMax }: Drawing): readonly DrawnProgram[] {
  const from = tracesOf(trace).map((name) => halvesOf(loadTrace(name)).score)
  const chance = Draw.of(seed, trace)
  const chosen: TraceProgram[] = []
  // In rounds, each trace a program: the mix has as many of each.
  for (let calls = 0; chosen.length < programsMax && (calls < callsMax || chosen.length % from.length > 0);) {
    const program = chance.pick(from[chosen.length % from.length] ?? [])
    chosen.push(program)
    calls += program.nodes.filter(({ kind }) => kind === 'call').length
  }
  return timed('score', chance.shuffled(chosen), load, chance, Draw.of(seed, 'arrivals'))
}

function timed(name: string, programs: readonly TraceProgram[], load: Load, chance: Draw, arrivals: Draw): readonly DrawnProgram[] {
  const sample = waitSampler()
  const meanUs = programs.reduce((sum, program) => sum + workUs(program), 0) / programs.length
  const times = arrivalsUs(load === 'burst' ? 'burst' : 'poisson', programs.length, load === 'burst' ? 0 : meanUs / Number(load), arrivals)
  return programs.map((of, index) => ({
    name: `${name}-${index}`, of, arrivalUs: times[index] ?? 0,
    waitsUs: of.nodes.map((node) => (node.kind === 'call' ? 0 : Math.min(WAIT_US_MAX, node.waitUs ?? sample(node, chance)))),
  }))
}

/** Engine time of a program in full batches: what load is a share of. */
const workUs = ({ nodes }: TraceProgram): Us => nodes.reduce((sum, node) => sum + callWorkUs(node), 0)

export function callWorkUs(node: TraceNode): Us {
  const { stepUs, rowUs, prefillUsPerToken, rows } = SPEEDS
  return node.kind === 'call' ? node.newTokens * prefillUsPerToken + node.outputTokens * (stepUs / rows + rowUs) : 0
}
