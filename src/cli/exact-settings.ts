/**
 * Owns the settings under which a model may be exact: which are tried, which of those that are is the cheapest, and what
 * it costs beside the settings as they come. What the answers are is the engine's to find out.
 */
import { defaultConfig } from '../config.ts'
import type { EngineSettings } from '../engines/embedded-words.ts'
import { weighedBy } from './described-model.ts'
import { probesPath, type ProbeAnswer } from './probe-answers.ts'

interface Tried { readonly extraBuffers: boolean; readonly rowUnit: 1 | 2 | 4; readonly flashAttention: false | 'exact' }

const AS_THEY_COME: Tried = { extraBuffers: true, rowUnit: 1, flashAttention: false }
export const EXACT_ATTENTION: Tried = { ...AS_THEY_COME, flashAttention: 'exact' }
/** Other settings than those as they come are named where they are so much faster, decoding and prefilling together. */
const FASTER = 1.05
/** In the order they are tried in; what is dearer than one that is exact is left out. */
export const ALL_TRIED: readonly Tried[] = [
  AS_THEY_COME, EXACT_ATTENTION, { ...AS_THEY_COME, extraBuffers: false }, { ...AS_THEY_COME, rowUnit: 2 }, { ...AS_THEY_COME, rowUnit: 4 },
  { ...AS_THEY_COME, extraBuffers: false, rowUnit: 2 },
]

/** Loads the model once for each of the settings, with lanes, chunks and threads as a server has them by itself. */
export async function probe(modelPath: string, libraryDir: string | null, say: (line: string) => void): Promise<void> {
  const [engine] = defaultConfig().engines
  if (engine?.kind !== 'embedded') throw new Error('the standard engine is no embedded one')
  const { lanes, laneTokens, threads, chunkTokens } = engine
  const weighed = async (tried: Tried): Promise<string> => {
    const settings: EngineSettings = {
      modelPath, lanes, laneTokens, threads, chunkTokens, libraryDir, probeCachePath: probesPath(), ...tried,
    }
    const { exact, decodeTokensPerS, prefillTokensPerS } = await weighedBy(settings)
    say(`${wordsOf(tried)}: exact ${exact.answer}, decodes ${Math.round(decodeTokensPerS)} and prefills ${Math.round(prefillTokensPerS)} tokens a second`)
    return exact.answer
  }
  const found: Tried[] = []
  for (const tried of ALL_TRIED) {
    if (!found.some((one) => isDearer(tried, one)) && await weighed(tried) === 'yes') found.push(tried)
  }
}

/** Does all that the other does, and more. */
const isDearer = (one: Tried, than: Tried): boolean => one.flashAttention === than.flashAttention && one.rowUnit >= than.rowUnit && (than.extraBuffers || !one.extraBuffers)

/** The cheapest settings that are exact, and what is left of the speed of the settings as they come. */
interface Cheapest {
  readonly extraBuffers: boolean
  readonly rowUnit: number
  readonly flashAttention: boolean | 'exact'
  readonly decodeRatio: number
  readonly prefillRatio: number
}

/** Null: nothing that was weighed is exact; undefined: nothing was weighed. */
export function cheapestOf(answers: readonly ProbeAnswer[]): Cheapest | null | undefined {
  const isBase = ({ extraBuffers, rowUnit, flashAttention }: ProbeAnswer): boolean =>
    extraBuffers === AS_THEY_COME.extraBuffers && rowUnit === AS_THEY_COME.rowUnit && flashAttention === AS_THEY_COME.flashAttention
  const base = answers.findLast((one) => isBase(one) && one.speeds !== null)
  if (base?.speeds === undefined || base.speeds === null) return undefined
  const { speeds } = base
  const exact = answers.filter((one) => one.answer === 'yes' && isBeside(one, base)).flatMap((one): Cheapest[] => one.speeds === null ? [] : [{
    extraBuffers: one.extraBuffers, rowUnit: one.rowUnit, flashAttention: one.flashAttention,
    decodeRatio: one.speeds.decodeTokensPerS / speeds.decodeTokensPerS, prefillRatio: one.speeds.prefillTokensPerS / speeds.prefillTokensPerS,
  }])
  const best = exact.filter((one) => !isAsTheyCome(one)).sort((a, b) => gainOf(b) - gainOf(a))[0]
  const isWorthIt = best !== undefined && (base.answer !== 'yes' || gainOf(best) >= FASTER)
  return isWorthIt ? best : base.answer === 'yes' ? { ...AS_THEY_COME, decodeRatio: 1, prefillRatio: 1 } : null
}

const gainOf = ({ decodeRatio, prefillRatio }: Cheapest): number => decodeRatio * prefillRatio

const isAsTheyCome = ({ extraBuffers, rowUnit, flashAttention }: Omit<Cheapest, 'decodeRatio' | 'prefillRatio'>): boolean =>
  extraBuffers && rowUnit === 1 && flashAttention === false

const isBeside = (one: ProbeAnswer, base: ProbeAnswer): boolean =>
  one.lanes === base.lanes && one.laneTokens === base.laneTokens && one.chunkTokens === base.chunkTokens && one.threads === base.threads
  && one.flashAttention !== true && one.kvTypes === base.kvTypes && one.gpu === base.gpu

export function cheapestText(cheapest: Cheapest | null | undefined): string {
  if (cheapest === undefined) return 'not looked for yet: "entracte models show MODEL --probe" tries settings and says what they cost'
  if (cheapest === null) return `none of ${ALL_TRIED.length} settings that were tried; a recompute may change what is said`
  const { extraBuffers, rowUnit, flashAttention, decodeRatio, prefillRatio } = cheapest
  if (isAsTheyCome(cheapest)) return 'the settings as they come, which costs nothing'
  const set = [flashAttention === 'exact' ? 'flashAttention: exact' : null, extraBuffers ? null : 'extraBuffers: false', rowUnit === 1 ? null : `rowUnit: ${rowUnit}`].filter((one) => one !== null)
  return `${set.join(', ')}; decodes at ${decodeRatio.toFixed(2)} and prefills at ${prefillRatio.toFixed(2)} of the speed of the settings as they come`
}

export const attentionWord = (attention: boolean | 'exact'): string => attention === 'exact' ? 'exact' : attention ? 'on' : 'off'

export const wordsOf = ({ extraBuffers, rowUnit, flashAttention }: Pick<ProbeAnswer, 'extraBuffers' | 'rowUnit' | 'flashAttention'>): string =>
  `flash attention ${attentionWord(flashAttention)}, weights ${extraBuffers ? 'repacked' : 'as they are'}, ${rowUnit === 1 ? 'rows as they come' : rowUnit === 2 ? 'two rows at least' : 'rows in fours'}`
