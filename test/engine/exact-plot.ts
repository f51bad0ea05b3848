/** Owns what a random script is, drawn from its seed: programs, their calls, and what is done to them on the way. */
import type { Sampling, ToolDefinition } from '../../src/protocol/chat.ts'

/** What happens to a call once it has put out so many tokens. */
export interface Disturbance {
  readonly atTokens: number
  readonly kind: 'pause' | 'pause and offload' | 'pause and discard' | 'pause and migrate' | 'cancel' | 'cancel and forget' | 'kill'
  /** Turns of the event loop to wait first: lands anywhere in a prefill. */
  readonly delay: number
}

export interface CallPlot {
  /** What the user or the tool says before it. */
  readonly says: string
  readonly forced: boolean
  readonly sampling: Sampling
  readonly stop: readonly string[]
  readonly seed: number
  readonly maxTokens: number
  readonly disturbances: readonly Disturbance[]
  /** What is done with its State while the next call is awaited. */
  readonly after: 'keep' | 'offload' | 'discard' | 'migrate'
  /** Where there is an image, it is used; else the State is recomputed. */
  readonly usesImage: boolean
  readonly rank: number
}

export interface ProgramPlot {
  readonly name: string
  readonly system: string
  readonly tools: readonly ToolDefinition[]
  readonly calls: readonly CallPlot[]
  /** Where its images are. */
  readonly tier: 'host' | 'disk'
  /** Turns of the event loop before it begins. */
  readonly delay: number
}

export interface Plot {
  readonly seed: number
  readonly programs: readonly ProgramPlot[]
  readonly chunkTokens: number
  readonly lanes: number
  /** States of others that hold lanes from the start: which of them go soon. */
  readonly squatters: readonly boolean[]
}

/** How large a script is. */
export interface Scale {
  readonly programsMax: number
  readonly callsMax: number
  readonly outputMax: number
  readonly wordsMax: number
  readonly toolDescription: string
}

export const TINY: Scale = { programsMax: 4, callsMax: 3, outputMax: 24, wordsMax: 12, toolDescription: 'w' }
export const REAL: Scale = {
  programsMax: 3, callsMax: 3, outputMax: 12, wordsMax: 30, toolDescription: 'Looks up the weather of a city.',
}

/** Mulberry32. */
export class Dice {
  #state: number

  constructor(seed: number) {
    this.#state = seed | 0
  }

  unit(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }

  /** From `min` to `max`, both included. */
  whole(min: number, max: number): number {
    return min + Math.floor(this.unit() * (max - min + 1))
  }

  chance(part: number): boolean {
    return this.unit() < part
  }

  of<T>(choices: readonly T[]): T {
    const chosen = choices[this.whole(0, choices.length - 1)]
    if (chosen === undefined) throw new Error('nothing to choose from')
    return chosen
  }
}

const WORDS = [
  'the', 'river', 'was', 'cold', 'and', 'seven', 'birds', 'crossed', 'it', 'twice', 'naïve', 'Zürich', '42', 'again', '— yes', 'tea',
]

export const words = (dice: Dice, max: number): string =>
  Array.from({ length: dice.whole(1, max) }, () => dice.of(WORDS)).join(' ')

export function drawPlot(seed: number, scale: Scale): Plot {
  const dice = new Dice(seed)
  const common = words(dice, scale.wordsMax)
  const programs = Array.from({ length: dice.whole(1, scale.programsMax) }, (_, i) => drawProgram(dice, scale, `p${i}`, common))
  return {
    seed,
    programs,
    chunkTokens: dice.of([4, 7, 16, 33, 64]),
    lanes: scale.programsMax + 3,
    squatters: Array.from({ length: dice.whole(0, 3) }, () => dice.chance(0.5)),
  }
}

/** Half of the programs have the `common` system text. */
export function drawProgram(dice: Dice, scale: Scale, name: string, common: string, callsMin = 1): ProgramPlot {
  const hasTools = dice.chance(0.3)
  const calls = Array.from({ length: dice.whole(callsMin, scale.callsMax) }, () => drawCall(dice, scale, hasTools))
  const tool: ToolDefinition = {
    name: 'weather',
    description: scale.toolDescription,
    parameters: {
      type: 'object',
      properties: { city: { enum: ['Bern', 'Oslo', 'Lima'] }, days: { type: 'integer', minimum: 1, maximum: 9 } },
      required: ['city', 'days'],
      additionalProperties: false,
    },
  }
  return {
    name,
    system: dice.chance(0.5) ? common : words(dice, scale.wordsMax),
    tools: hasTools ? [tool] : [],
    calls,
    tier: 'host',
    delay: dice.whole(0, 40),
  }
}

export function drawCall(dice: Dice, scale: Scale, hasTools: boolean): CallPlot {
  const greedy = dice.chance(0.4)
  return {
    says: words(dice, scale.wordsMax),
    forced: hasTools && dice.chance(0.6),
    sampling: greedy
      ? { temperature: 0, topP: 1, topK: 0, minP: 0 }
      : {
        temperature: dice.of([0.7, 1, 1.3]), topP: dice.of([1, 0.95, 0.8]), topK: dice.of([0, 0, 20]),
        minP: dice.of([0, 0, 0.05]),
      },
    stop: dice.chance(0.25) ? [dice.of([' a', 'e ', 'the', '. '])] : [],
    seed: dice.whole(0, 2 ** 31),
    maxTokens: dice.chance(0.1) ? 1 : dice.whole(2, scale.outputMax),
    disturbances: Array.from({ length: dice.of([0, 1, 1, 2, 3]) }, () => drawDisturbance(dice, scale))
      .sort((a, b) => a.atTokens - b.atTokens),
    after: dice.of(['keep', 'keep', 'offload', 'discard']),
    usesImage: dice.chance(0.8),
    rank: dice.whole(0, 9),
  }
}

const KINDS: readonly Disturbance['kind'][] = [
  'pause', 'pause', 'pause', 'pause and offload', 'pause and offload', 'pause and discard', 'pause and discard',
  'cancel', 'cancel and forget', 'kill',
]

export function drawDisturbance(dice: Dice, scale: Scale, kinds: readonly Disturbance['kind'][] = KINDS): Disturbance {
  return {
    atTokens: dice.chance(0.3) ? 0 : dice.whole(1, scale.outputMax),
    kind: dice.of(kinds),
    delay: dice.whole(0, 12),
  }
}
