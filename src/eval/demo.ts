/**
 * Owns the demonstration: the same agent programs, on the same model and in the same memory, first as engines work today
 * and then with Entracte; what differed, and why for the program that gained most and the one that lost most. Leaves
 * starting a server and reading flags to its caller.
 */
import type { OrderName } from '../core/config.ts'
import { explainText } from '../core/explain/explain-text.ts'
import { armOf, ENGINES_TODAY, ENTRACTE, type Arm } from './arm.ts'
import { startArm, type ArmServer, type StartServer } from './arm-server.ts'
import { graphFigures, graphTable, sameText, textFigures } from './graph-report.ts'
import { callsOf, loadGraphs, planGraphs, type GraphProgram } from './graphs.ts'
import { fitTo, loadMix, planArrivals, sizeOf, type Mix, type MixEngine } from './mix.ts'
import { runMix, type MixOutcome } from './mix-run.ts'
import { Progress, type Screen } from './progress.ts'
import { comparisonTable, figuresOf, pairPrograms, partsTable, programMs, programTable, type MixFigures, type PairedProgram } from './report.ts'

export interface DemoOptions {
  /** As a configuration names it: `default`, `tiny`, or a path. */
  readonly model: string
  /** Of arrival and tool times; null: the mix's first. */
  readonly seed: number | null
  /** The order of the second run; null: the default. */
  readonly policy: string | null
  /** Leave the second server up. */
  readonly keep: boolean
  readonly json: boolean
}

export interface DemoWorld {
  readonly start: StartServer
  /** What a person watches; with `json` it should be the error stream. */
  readonly screen: Screen
  /** Where the result goes. */
  readonly print: (text: string) => void
  /** Ends the demo, or what `--keep` left. */
  readonly signal: AbortSignal
  /** Another than the checked-in one. */
  readonly mix?: Mix
  readonly graphs?: readonly GraphProgram[]
}

/** As a shell has it for a program ended by Ctrl-C. */
export const INTERRUPTED = 130

const NAMES = ['engines today', 'Entracte'] as const

/** 0 where every program ended in both runs, 1 where one failed, `INTERRUPTED` where it was called off. */
export async function runDemo(options: DemoOptions, world: DemoWorld): Promise<number> {
  try {
    return await compare(options, world)
  } catch (error) {
    if (world.signal.aborted) return INTERRUPTED
    throw error
  }
}

async function compare(options: DemoOptions, world: DemoWorld): Promise<number> {
  const { mix = loadMix(), graphs = loadGraphs() } = world
  const seed = options.seed ?? mix.seeds[0] ?? 1
  const arms = [ENGINES_TODAY, secondArm(options.policy)] as const
  const run = { mix, graphs, seed, options, world }
  world.screen.write(introduction(mix, graphs, seed, options.model))
  const base = await measure(run, arms[0], `1 of 2: ${arms[0].name}, as engines work today`)
  await base.server.close()
  const other = await measure(run, arms[1], `2 of 2: ${arms[1].name}, Entracte`)
  try {
    const result = { mix, engine: fitTo(mix, options.model).engine, seed, arms, base: base.outcome, other: other.outcome, model: other.server.model, exact: other.server.exact, tiny: options.model === 'tiny' }
    world.print(options.json ? `${JSON.stringify(asJson(result), null, 2)}\n` : asText(result))
    if (options.keep) await kept(other.server, world)
    return figuresOf(base.outcome).failed + figuresOf(other.outcome).failed === 0 ? 0 : 1
  } finally {
    await other.server.close()
  }
}

const IS_ORDER: Readonly<Record<OrderName, true>> = { 'fcfs': true, 'fcfs-program': true, 'mlfq': true, 'plas': true, 'atlas': true, 'gittins': true }
const isOrder = (name: string): name is OrderName => Object.hasOwn(IS_ORDER, name)

/** Names an order the way `core.order` does; anything else is the caller's to refuse. */
function secondArm(policy: string | null): Arm {
  if (policy === null) return ENTRACTE
  if (!isOrder(policy)) throw new RangeError(`there is no order ${JSON.stringify(policy)}: ${Object.keys(IS_ORDER).join(', ')}`)
  return armOf(policy, ENTRACTE.residency)
}

interface DemoRun {
  readonly mix: Mix
  readonly graphs: readonly GraphProgram[]
  readonly seed: number
  readonly options: DemoOptions
  readonly world: DemoWorld
}

async function measure(run: DemoRun, arm: Arm, title: string): Promise<{ readonly server: ArmServer; readonly outcome: MixOutcome }> {
  const { mix, graphs, seed, options, world } = run
  world.screen.write('Starting the engine, and probing once whether its resumes are exact ...\n')
  const { engine, tokenScale } = fitTo(mix, options.model)
  const server = await startArm(world.start, arm, engine, options.model, world.signal)
  const rows = [...mix.programs.map(({ name, calls }) => ({ name, calls: calls.length })), ...graphs.map((program) => ({ name: program.name, calls: callsOf(program) }))]
  const progress = new Progress(world.screen, title, rows)
  try {
    const outcome = await runMix({
      endpoint: { url: server.url, headers: {} }, model: server.model, tokenScale, arrivals: planArrivals(mix, seed), graphs: planGraphs(graphs, mix, seed), seed, prefix: '',
      notify: (step, atMs) => progress.step(step, atMs), signal: world.signal,
    })
    return { server, outcome }
  } catch (error) {
    await server.close()
    throw error
  } finally {
    progress.end()
  }
}

interface DemoResult {
  readonly mix: Mix
  readonly engine: MixEngine
  readonly seed: number
  readonly arms: readonly [Arm, Arm]
  readonly base: MixOutcome
  readonly other: MixOutcome
  readonly model: string
  readonly exact: string
  readonly tiny: boolean
}

function introduction(mix: Mix, graphs: readonly GraphProgram[], seed: number, model: string): string {
  const size = sizeOf(mix)
  const { lanes, laneTokens, hostMiB } = fitTo(mix, model).engine
  const branching = graphs.map((program) => `${program.name} of up to ${callsOf(program)} calls`).join(', ')
  return [
    `${mix.programs.length + graphs.length} agent programs, each through the OpenAI API, twice; arrivals and tool times of seed ${seed}.`,
    `Device: ${lanes} lanes of ${laneTokens} tokens; host budget ${hostMiB.toFixed(0)} MiB. The contexts of ${mix.programs.length} chains of calls need ${size.lanesRatio.toFixed(1)} times the lanes,`,
    `and ${size.budgetRatio.toFixed(1)} times (by bytes ${size.budgetBytesRatio.toFixed(1)}) what device and host hold together.`,
    ...(graphs.length === 0 ? [] : [`Beside them ${graphs.length} small programs that report their forks and joins: ${branching}.`]),
    '', '',
  ].join('\n')
}

function asText(result: DemoResult): string {
  const pairs = pairPrograms(result.base, result.other)
  const failed = [...result.base.programs, ...result.other.programs].filter(({ record }) => record.error !== null)
  const best = pairs[0]
  const worst = pairs.at(-1)
  return [
    comparisonTable(NAMES, figuresOf(result.base), figuresOf(result.other)),
    programTable(NAMES, pairs),
    ...(pairs.some(({ base }) => base.record.graph !== null) ? [graphTable(NAMES, pairs)] : []),
    sameText(pairs, result.exact),
    ...(result.tiny ? ['The tiny model is too quick for a queue to form: it shows that all works, and its figures say nothing.'] : []),
    ...failed.map(({ record }) => `${record.name} failed: ${record.error}`),
    ...(best === undefined ? [] : [story(`${best.name} gained most`, best)]),
    ...(worst === undefined || worst === best ? [] : [story(`${worst.name} ${worst.gain < 1 ? 'lost most' : 'gained least; none lost'}`, worst)]),
  ].join('\n\n') + '\n'
}

const story = (title: string, pair: PairedProgram): string => [
  `${title}: ${pair.gain.toFixed(2)}x`,
  partsTable(NAMES, pair),
  '',
  'With Entracte, as `entracte explain` tells it:',
  explainText(pair.other.explanation).trimEnd(),
].join('\n')

function asJson(result: DemoResult): object {
  const armJson = (arm: Arm, outcome: MixOutcome): object => ({
    ...arm, ...figuresOf(outcome),
    programs: outcome.programs.map((one) => ({ ...one.record, joins: graphFigures(one), parts: one.explanation.parts })),
  })
  const [base, other]: [MixFigures, MixFigures] = [figuresOf(result.base), figuresOf(result.other)]
  const pairs = pairPrograms(result.base, result.other)
  return {
    model: result.model,
    seed: result.seed,
    engine: result.engine,
    size: sizeOf(result.mix),
    exact: result.exact,
    texts: textFigures(pairs),
    arms: [armJson(result.arms[0], result.base), armJson(result.arms[1], result.other)],
    ratio: { mean: base.meanMs / other.meanMs, p95: base.p95Ms / other.p95Ms },
    gains: pairs.map((pair) => ({ name: pair.name, gain: pair.gain, baseMs: programMs(pair.base), otherMs: programMs(pair.other) })),
    explain: [pairs[0], pairs.at(-1)].flatMap((pair) => (pair === undefined ? [] : [pair.other.explanation])),
  }
}

async function kept(server: ArmServer, world: DemoWorld): Promise<void> {
  const body = JSON.stringify({ model: server.model, messages: [{ role: 'user', content: 'What is a lane?' }], max_tokens: 40 })
  world.screen.write([
    `The server stays up at ${server.url}/v1; Ctrl-C ends it. Try:`, '',
    `  curl ${server.url}/v1/chat/completions -H 'content-type: application/json' -d '${body}'`, '', '',
  ].join('\n'))
  if (world.signal.aborted) return
  await new Promise<void>((resolve) => world.signal.addEventListener('abort', () => resolve(), { once: true }))
}
