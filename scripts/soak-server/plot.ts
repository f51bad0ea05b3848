/**
 * Owns what a soaked program does, as data: drawn from its number alone, so that it can be played alone first and then
 * many times in any company, and must say the same each time.
 */
import { Draw } from '../../src/eval/draw.ts'

/** One call: what is said before it, and what it may answer with. */
export interface Ask {
  readonly say: string
  /** `tool`: a forced call, whose result the next ask brings; `json`: held to a schema. */
  readonly form: 'text' | 'tool' | 'json'
  readonly outputTokens: number
  readonly temperature: number
  readonly seed: number
  /** The tool's, or the person's, before the next ask. */
  readonly waitMs: number
}

export interface Plot {
  readonly number: number
  /**
   * `chain`: one program, one thread; `chat`: a session, each turn a program that nobody declares; `fork`: threads that
   * go on from the first one's end, beside each other.
   */
  readonly shape: 'chain' | 'chat' | 'fork'
  readonly tenant: number
  readonly opening: string
  readonly asks: readonly Ask[]
  /** Of a fork; else empty. */
  readonly branches: readonly (readonly Ask[])[]
}

export interface Scale {
  readonly openingWords: number
  readonly outputTokens: number
  readonly asks: number
  readonly waitMs: number
}

const WORDS = ['harbour', 'ledger', 'twelve', 'copper', 'winter', 'signal', 'Größe', 'paper', 'naïve', 'river', 'seven', 'lantern', '木', 'orchard', 'half', 'engine']
const BRANCHES_MAX = 3

export function plotOf(seed: number, number: number, tenants: number, scale: Scale): Plot {
  const draw = Draw.of(seed, `plot ${number}`)
  const shape = draw.pick(['chain', 'chain', 'chat', 'fork'] as const)
  const asks = asksOf(draw, shape, 1 + draw.below(shape === 'fork' ? 1 : scale.asks), scale)
  const branches = shape !== 'fork' ? [] : Array.from({ length: 2 + draw.below(BRANCHES_MAX - 1) }, () => asksOf(draw, shape, 1 + draw.below(2), scale))
  return { number, shape, tenant: draw.below(tenants), opening: words(draw, scale.openingWords), asks, branches }
}

function asksOf(draw: Draw, shape: Plot['shape'], count: number, scale: Scale): Ask[] {
  return Array.from({ length: count }, (_, at): Ask => ({
    say: words(draw, 24),
    form: shape === 'chat' ? 'text' : shape === 'fork' && at === count - 1 ? 'text' : draw.pick(['text', 'tool', 'tool', 'json'] as const),
    outputTokens: 8 + draw.below(scale.outputTokens),
    temperature: draw.pick([0, 0.7, 0.9]),
    seed: draw.below(1_000_000),
    waitMs: Math.round(draw.exponential(scale.waitMs)),
  }))
}

const words = (draw: Draw, most: number): string => Array.from({ length: 3 + draw.below(most) }, () => draw.pick(WORDS)).join(' ')
