/**
 * Owns the settings under which a model may be exact: which are tried, which of those that are is the cheapest, and what
 * it costs beside the settings as they come. What the answers are is the engine's to find out.
 */
import { defaultConfig } from '../config.ts'
import type { EngineSettings } from '../engines/embedded-words.ts'
import { weighedBy } from './described-model.ts'
import { probesPath, type ProbeAnswer } from './probe-answers.ts'

interface Tried { readonly extraBuffers: boolean; readonly rowUnit: 1 | 2 | 4 }

const AS_THEY_COME: Tried = { extraBuffers: true, rowUnit: 1 }
/** In the order they are tried in; what is dearer than one that is exact is left out. */
export const ALL_TRIED: readonly Tried[] = [
  AS_THEY_COME, { extraBuffers: false, rowUnit: 1 }, { extraBuffers: true, rowUnit: 2 }, { extraBuffers: true, rowUnit: 4 }, { extraBuffers: false, rowUnit: 2 },
]

/** Loads the model once for each of the settings, with lanes, chunks and threads as a server has them by itself. */
export async function probe(modelPath: string, libraryDir: string | null, say: (line: string) => void): Promise<void> {
  const [engine] = defaultConfig().engines
  if (engine?.kind !== 'embedded') throw new Error('the standard engine is no embedded one')
  const { lanes, laneTokens, threads, chunkTokens, flashAttention } = engine
  const weighed = async (tried: Tried): Promise<string> => {
    const settings: EngineSettings = {
      modelPath, lanes, laneTokens, threads, chunkTokens, flashAttention, libraryDir, probeCachePath: probesPath(), ...tried,
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
const isDearer = (one: Tried, than: Tried): boolean => one.rowUnit >= than.rowUnit && (than.extraBuffers || !one.extraBuffers)

/** The cheapest settings that are exact, and what is left of the speed of the settings as they come. */
interface Cheapest {
  readonly extraBuffers: boolean
  readonly rowUnit: number
  readonly decodeRatio: number
  readonly prefillRatio: number
}

/** Null: nothing that was weighed is exact; undefined: nothing was weighed. */
export function cheapestOf(answers: readonly ProbeAnswer[]): Cheapest | null | undefined {
  const isBase = ({ extraBuffers, rowUnit }: ProbeAnswer): boolean => extraBuffers === AS_THEY_COME.extraBuffers && rowUnit === AS_THEY_COME.rowUnit
  const base = answers.findLast((one) => isBase(one) && one.speeds !== null)
  if (base?.speeds === undefined || base.speeds === null) return undefined
  const { speeds } = base
  const exact = answers.filter((one) => one.answer === 'yes' && isBeside(one, base)).flatMap((one): Cheapest[] => one.speeds === null ? [] : [{
    extraBuffers: one.extraBuffers, rowUnit: one.rowUnit,
    decodeRatio: one.speeds.decodeTokensPerS / speeds.decodeTokensPerS, prefillRatio: one.speeds.prefillTokensPerS / speeds.prefillTokensPerS,
  }])
  if (base.answer === 'yes') return { ...AS_THEY_COME, decodeRatio: 1, prefillRatio: 1 }
  return exact.sort((a, b) => b.decodeRatio * b.prefillRatio - a.decodeRatio * a.prefillRatio)[0] ?? null
}

const isBeside = (one: ProbeAnswer, base: ProbeAnswer): boolean =>
  one.lanes === base.lanes && one.laneTokens === base.laneTokens && one.chunkTokens === base.chunkTokens && one.threads === base.threads
  && one.flashAttention === base.flashAttention && one.kvTypes === base.kvTypes && one.gpu === base.gpu

export function cheapestText(cheapest: Cheapest | null | undefined): string {
  if (cheapest === undefined) return 'not looked for yet: "entracte models show MODEL --probe" tries settings and says what they cost'
  if (cheapest === null) return `none of ${ALL_TRIED.length} settings that were tried; a recompute may change what is said`
  const { extraBuffers, rowUnit, decodeRatio, prefillRatio } = cheapest
  if (extraBuffers && rowUnit === 1) return 'the settings as they come, which costs nothing'
  const set = [extraBuffers ? null : 'extraBuffers: false', rowUnit === 1 ? null : `rowUnit: ${rowUnit}`].filter((one) => one !== null)
  return `${set.join(', ')}; decodes at ${decodeRatio.toFixed(2)} and prefills at ${prefillRatio.toFixed(2)} of the speed of the settings as they come`
}

export const wordsOf = ({ extraBuffers, rowUnit }: { readonly extraBuffers: boolean; readonly rowUnit: number }): string =>
  `weights ${extraBuffers ? 'repacked' : 'as they are'}, ${rowUnit === 1 ? 'rows as they come' : rowUnit === 2 ? 'two rows at least' : 'rows in fours'}`
