/** Owns what a round of exactness cases is, drawn from its seed: what programs say, and the path each of them takes. */
import { Dice, drawCall, drawDisturbance, drawProgram, words } from '../../test/engine/exact-plot.ts'
import type { CallPlot, Disturbance, ProgramPlot, Scale } from '../../test/engine/exact-plot.ts'

export const PATHS = ['preserve', 'host', 'disk', 'discard', 'preempt', 'prefix', 'fork', 'migrate', 'kill', 'mixed'] as const
export type Path = (typeof PATHS)[number]

/** What programs say: several cases share it, and it is played alone once. */
export interface Content {
  readonly plot: ProgramPlot
  /** The same but for its last call. */
  readonly other: ProgramPlot
}

export interface CasePlot {
  readonly path: Path
  readonly content: number
  readonly plot: ProgramPlot
}

export interface Round {
  readonly seed: number
  readonly contents: readonly Content[]
  /** All at once: each is the company of the others. */
  readonly cases: readonly CasePlot[]
}

const SIZES: readonly number[] = [1, 2, 4, 8, 16, 16, 16]
const CASES_PER_CONTENT = 8
const CALLS_MIN = 2
/** One round in so many loses its engine in the middle. */
const KILL_EVERY = 4
/** Turns of the event loop. */
const DELAY_MAX = 12

/** Programs at once, their forks among them. */
export const LANES = 22

export function drawRound(seed: number, scale: Scale, images: boolean): Round {
  const dice = new Dice(seed)
  const size = dice.of(SIZES)
  const common = words(dice, scale.wordsMax)
  const contents = Array.from({ length: Math.ceil(size / CASES_PER_CONTENT) }, (_, index) => drawContent(dice, scale, `c${index}`, common))
  const kills = seed % KILL_EVERY === 0
  const paths = kills ? ['kill', 'mixed'] as const
    : PATHS.filter((path) => path !== 'kill' && (images || (path !== 'host' && path !== 'disk')))
  const first = dice.whole(0, paths.length - 1)
  const cases = Array.from({ length: size }, (_, index): CasePlot => {
    const path = kills && index === 0 ? 'kill' : paths[(first + index) % paths.length] ?? 'mixed'
    const content = index % contents.length
    const said = contents[content]?.plot
    if (said === undefined) throw new Error(`there is no content ${content}`)
    return { path, content, plot: onPath(dice, scale, said, path, kills && index === 0) }
  })
  return { seed, contents, cases }
}

function drawContent(dice: Dice, scale: Scale, name: string, common: string): Content {
  const drawn = drawProgram(dice, scale, name, common, CALLS_MIN)
  const plot = { ...drawn, calls: drawn.calls.map(undisturbed) }
  const last = drawCall(dice, scale, plot.tools.length > 0)
  return { plot, other: { ...plot, calls: [...plot.calls.slice(0, -1), undisturbed(last)] } }
}

const undisturbed = (call: CallPlot): CallPlot => ({ ...call, disturbances: [], after: 'keep', usesImage: true })

/** What is done to a call of a path: in its middle, and while the next one is awaited. */
interface Doing { readonly kinds: readonly Disturbance['kind'][]; readonly after: readonly CallPlot['after'][] }

const DOINGS: Readonly<Record<Path, Doing>> = {
  preserve: { kinds: [], after: ['keep'] },
  host: { kinds: ['pause and offload'], after: ['offload'] },
  disk: { kinds: ['pause and offload'], after: ['offload'] },
  discard: { kinds: ['pause and discard'], after: ['discard'] },
  preempt: { kinds: ['pause'], after: ['keep'] },
  prefix: { kinds: [], after: ['keep'] },
  fork: { kinds: [], after: ['keep'] },
  migrate: { kinds: ['pause and migrate'], after: ['migrate'] },
  kill: { kinds: [], after: ['keep', 'offload'] },
  mixed: {
    kinds: ['pause', 'pause and offload', 'pause and discard', 'pause and migrate', 'cancel', 'cancel and forget'],
    after: ['keep', 'offload', 'discard', 'migrate'],
  },
}

function onPath(dice: Dice, scale: Scale, said: ProgramPlot, path: Path, kills: boolean): ProgramPlot {
  const { kinds, after } = DOINGS[path]
  const killed = kills ? dice.whole(0, said.calls.length - 1) : null
  return {
    ...said,
    tier: path === 'disk' || (path === 'mixed' && dice.chance(0.5)) ? 'disk' : 'host',
    delay: dice.whole(0, DELAY_MAX),
    calls: said.calls.map((call, index): CallPlot => ({
      ...call,
      disturbances: index === killed ? [drawDisturbance(dice, scale, ['kill'])]
        : Array.from({ length: kinds.length === 0 ? 0 : dice.whole(0, 2) }, () => drawDisturbance(dice, scale, kinds)).sort((a, b) => a.atTokens - b.atTokens),
      after: dice.of(after),
      usesImage: path === 'mixed' ? dice.chance(0.8) : path !== 'discard',
      rank: dice.whole(0, 9),
    })),
  }
}

/** Whether a case went its path: a call may end before what was to be done to it. */
export function wentItsPath(path: Path, happened: Readonly<Record<string, number>>): boolean {
  const did = (...kinds: readonly string[]): boolean => kinds.some((kind) => (happened[kind] ?? 0) > 0)
  switch (path) {
    case 'preserve': case 'fork': return true
    case 'prefix': return did('prefix reused')
    case 'host': case 'disk': return did('onboard')
    case 'discard': return did('pause and discard', 'discard between calls')
    case 'preempt': return did('pause')
    case 'migrate': return did('pause and migrate', 'migrate between calls')
    case 'kill': return did('revived')
    case 'mixed': return Object.keys(happened).filter((kind) => kind !== 'prefix reused').length > 1
  }
}
