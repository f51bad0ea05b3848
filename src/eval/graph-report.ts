/**
 * Owns what came of the programs with joins, and how far two runs wrote the same. A chain of calls is compared as a whole;
 * of a graph, only the calls that ended in both runs and were asked the same, since which branches a join leaves is a
 * matter of time.
 */
import { columns } from '../core/explain/explain-text.ts'
import type { ProgramRecord } from './agent-record.ts'
import type { ProgramOutcome } from './mix-run.ts'
import type { PairedProgram } from './report.ts'

interface GraphFigures {
  readonly ended: boolean
  readonly committedCalls: number
  /** Since a join had fired without them. */
  readonly cancelledCalls: number
  /** By the facts of the server, as are the joins that fired. */
  readonly forks: number
  readonly joinsFired: number
  readonly joinsDeclared: number
}

/** Null for a chain of calls. */
export function graphFigures({ record, explanation }: ProgramOutcome): GraphFigures | null {
  const { graph, error, calls } = record
  if (graph === null) return null
  const seen = (what: string): number => explanation.events.filter((event) => event.what === what).length
  return {
    ended: error === null && explanation.stage === 'completed', committedCalls: calls.length, cancelledCalls: graph.nodes.filter(({ wrote }) => wrote === null).length,
    forks: seen('forked'), joinsFired: seen('joined'), joinsDeclared: graph.joins,
  }
}

export function graphTable(names: readonly [string, string], pairs: readonly PairedProgram[]): string {
  const rows = [...pairs].sort((a, b) => (a.name < b.name ? -1 : 1)).flatMap(({ name, base, other }) => [base, other].flatMap((outcome, run) => {
    const figures = graphFigures(outcome)
    if (figures === null) return []
    const { ended, committedCalls, cancelledCalls, forks, joinsFired, joinsDeclared } = figures
    return [[
      run === 0 ? name : '', names[run] ?? '', ended ? 'ended' : 'did not end', String(committedCalls), String(cancelledCalls), String(forks),
      `${joinsFired} of ${joinsDeclared}`,
    ]]
  }))
  return columns([['program with joins', 'run', '', 'calls', 'cancelled', 'forks', 'joins fired'], ...rows], 'lllrrrr').join('\n')
}

interface TextFigures {
  /** Programs that are chains of calls. */
  readonly chains: number
  readonly chainsSame: number
  /** Of programs with joins, those that can be compared. */
  readonly calls: number
  readonly callsSame: number
  /** A join cancelled them in at least one of the runs. */
  readonly callsCancelled: number
  /** Other branches had won, or what came before was written otherwise, or the program did not get that far. */
  readonly callsAskedOtherwise: number
}

export function textFigures(pairs: readonly PairedProgram[]): TextFigures {
  const chains = pairs.filter(({ base }) => base.record.graph === null)
  const calls = pairs.flatMap(({ base, other }) => callPairs(base.record, other.record))
  const comparable = calls.filter((call) => call.kind === 'comparable')
  return {
    chains: chains.length,
    chainsSame: chains.filter(({ base, other }) => base.record.digest === other.record.digest).length,
    calls: comparable.length,
    callsSame: comparable.filter(({ same }) => same).length,
    callsCancelled: calls.filter(({ kind }) => kind === 'cancelled').length,
    callsAskedOtherwise: calls.filter(({ kind }) => kind === 'asked otherwise').length,
  }
}

type CallPair = { readonly kind: 'comparable'; readonly same: boolean } | { readonly kind: 'cancelled' | 'asked otherwise' }

/** Every node that either run has. */
function callPairs(base: ProgramRecord, other: ProgramRecord): readonly CallPair[] {
  const others = new Map(other.graph?.nodes.map((node) => [node.node, node]))
  const bases = new Map(base.graph?.nodes.map((node) => [node.node, node]))
  return [...new Set([...bases.keys(), ...others.keys()])].map((name): CallPair => {
    const [one, two] = [bases.get(name), others.get(name)]
    if (one?.wrote === null || two?.wrote === null) return { kind: 'cancelled' }
    if (one === undefined || two === undefined || one.asked !== two.asked) return { kind: 'asked otherwise' }
    return { kind: 'comparable', same: one.wrote === two.wrote }
  })
}

/** `exact`: the engine's answer to whether its resumes are. */
export function sameText(pairs: readonly PairedProgram[], exact: string): string {
  const { chains, chainsSame, calls, callsSame, callsCancelled, callsAskedOtherwise } = textFigures(pairs)
  const why = exact === 'yes'
    ? 'The first run recomputes plainly, as engines do, which can change what a model writes; the second resumes exactly.'
    : `This engine's resumes are not known to be exact (${exact}), so both runs may differ from an undisturbed one.`
  const chainsText = chains === 0 ? [] : [`${chainsSame} of ${chains} programs that are chains of calls`]
  const callsText = chains === pairs.length ? [] : [`${callsSame} of ${calls} calls of programs with joins that can be compared`]
  return [
    `The model wrote the same in both runs for ${[...chainsText, ...callsText].join(', and for ')}.`,
    ...(chains === pairs.length ? [] : [
      `Not compared: ${callsCancelled} calls that a join cancelled in a run, ${callsAskedOtherwise} that were asked otherwise (other branches had won, or wrote otherwise).`,
    ]),
    why,
  ].join('\n')
}
