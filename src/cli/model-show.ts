/**
 * Owns `entracte models show`: what an engine would do with a model, as the engine's own program describes it, and what
 * fits in this machine's memory.
 */
import { Command } from 'commander'
import { size } from '../core/explain/explain-text.ts'
import { readGguf, type Gguf } from '../models/gguf.ts'
import { resolveModel } from '../models/resolve.ts'
import type { WireDescription } from '../protocol/engine.ts'
import { describedBy } from './described-model.ts'
import { cheapestOf, cheapestText, probe, wordsOf } from './exact-settings.ts'
import { wholeNumber } from './options.ts'
import { probeAnswers, type ProbeAnswer } from './probe-answers.ts'
import { note, print, printJson } from './terminal.ts'

/** The least an engine can be started with. */
const LEAST = { lanes: 1, laneTokens: 256, threads: 1, chunkTokens: 128, flashAttention: false, extraBuffers: true, probeCachePath: null } as const
/** What a batch needs beside weights and KV, and the process itself. */
const WORKING_BYTES = 256 << 20
const LANES_MAX = 256
const LANE_TOKENS_SHOWN: readonly number[] = [2_048, 8_192, 32_768, 131_072]

/** The newest answers of the probe. */
const EXACT_SHOWN_MAX = 5

interface Fit {
  readonly laneTokens: number
  readonly lanes: number
}

interface ShowOptions {
  readonly laneTokens?: number
  readonly library?: string
  readonly probe: boolean
  readonly json: boolean
}

export const showCommand = (): Command => new Command('show')
  .summary('what an engine will do with a model')
  .description(`Shows what an engine will do with a model: context, KV bytes a token, template and tool format, what can be done with a
State, whether resumes were found exact and under which settings, and what fits in this machine's memory.
Loads the model once, in a process of its own; fetches nothing. With --probe it loads it up to five times more and finds
out how cheaply a resume can be exact, which takes from some seconds to minutes; the answers are kept and shown by themselves from then on.`)
  .argument('<model>', 'as "entracte models ls" names it, or a path')
  .option('--lane-tokens <tokens>', 'how many lanes of so many tokens fit', wholeNumber(256, 1 << 24))
  .option('--library <folder>', 'shared libraries of llama.cpp, instead of those that were installed')
  .option('--probe', 'find out which settings are exact and what they cost; loads the model several times', false)
  .option('--json', 'print it as JSON', false)
  .action(async (given: string, options: ShowOptions) => {
    const { path, name, digest } = await resolveModel({ model: given, env: { ...process.env, ENTRACTE_OFFLINE: '1' } })
    const head = readGguf(path)
    const availableBytes = process.availableMemory()
    const described = await describedBy({ ...LEAST, modelPath: path, libraryDir: options.library ?? null })
    if (options.probe) await probe(path, options.library ?? null, note)
    const fits = fitsIn(availableBytes, described, options.laneTokens)
    const exact = probeAnswers().filter(({ modelDigest, library, cpuKernel }) =>
      modelDigest === digest && library === described.library && cpuKernel === described.cpuKernel)
    if (options.json) printJson({ model: given, name, path, digest, head, engine: described, exact, cheapest: cheapestOf(exact) ?? null, fits, availableBytes })
    else print(text(name, path, head, described, exact, fits, availableBytes))
  })

// ---------------------------------------------------------------- what fits

function fitsIn(availableBytes: number, { weightsBytes, kvBytesPerToken, stateBytes, trainedContext }: WireDescription, asked: number | undefined): readonly Fit[] {
  const left = availableBytes - weightsBytes - WORKING_BYTES
  const sizes = asked !== undefined ? [asked]
    : [...new Set([...LANE_TOKENS_SHOWN.filter((tokens) => tokens < trainedContext), trainedContext])].filter((tokens) => tokens > 0)
  return sizes.map((laneTokens) => {
    const laneBytes = laneTokens * kvBytesPerToken + stateBytes
    return { laneTokens, lanes: Math.max(0, Math.min(LANES_MAX, Math.floor(left / Math.max(1, laneBytes)))) }
  })
}

// ---------------------------------------------------------------- telling

const MEMORY: Readonly<Record<WireDescription['memory'], string>> = {
  attention: 'attention over the whole context',
  window: 'attention over a sliding window in some layers',
  recurrent: 'one recurrent state',
  hybrid: 'attention in some layers, a recurrent state in others',
}

function text(
  name: string, path: string, head: Gguf, engine: WireDescription, exact: readonly ProbeAnswer[], fits: readonly Fit[], availableBytes: number,
): string {
  const { architecture, layers, vocabulary, trainedContext, loses, reasoning } = engine
  const lines: readonly (readonly [string, string])[] = [
    ['model', `${name}: ${path}`],
    ['file', `${size(head.bytes)}, ${head.quantisation ?? 'of an unnamed quantisation'}, ${weightsText(head.parameters)} weights, licence ${head.licence ?? 'not in the file'}`],
    ['architecture', `${architecture}, ${layers} layers, ${vocabulary} tokens in the vocabulary; ${MEMORY[engine.memory]}`],
    ['context', `trained for ${trainedContext} tokens`],
    ['KV', kvText(engine)],
    ['template', engine.template === 'model' ? 'from the file' : 'the file has none: ChatML is used, which the model may not know'],
    ['tools', toolsText(engine)],
    ['reasoning', reasoning === null ? 'not told apart' : `between ${reasoning.open} and ${reasoning.close}`],
    ['text', loses.length === 0 ? 'comes back from its tokens' : `the tokenizer loses ${loses.join(', ')}`],
    ['a State', stateText(engine)],
    ...exactLines(exact),
    ['exact with', cheapestText(cheapestOf(exact))],
    ['fits here', fitsText(fits, availableBytes)],
  ]
  const width = Math.max(...lines.map(([label]) => label.length))
  return lines.map(([label, said]) => `${label.padEnd(width)}  ${said}`).join('\n')
}

const weightsText = (count: number): string =>
  count >= 1e9 ? `${(count / 1e9).toFixed(1)} billion` : count >= 1e6 ? `${Math.round(count / 1e6)} million` : String(count)

function kvText({ kvBytesPerToken, stateBytes }: WireDescription): string {
  const fixed = stateBytes === 0 ? '' : `${size(stateBytes)} a State`
  if (kvBytesPerToken === 0) return `${fixed}, whatever its length`
  return `${size(kvBytesPerToken)} a token${fixed === '' ? '' : ` and ${fixed}`}`
}

function toolsText({ tools }: WireDescription): string {
  if (tools.kind === 'native') return `called in the ${tools.format} form, which the template writes`
  if (tools.kind === 'written') return `called in the ${tools.format} form, which the template only names; its list is written into the system text`
  return 'the template knows none: their list is written into the system text, and a grammar carries a forced call'
}

function stateText({ can }: WireDescription): string {
  const list = [can.trim ? 'cut at a token' : null, can.copy ? 'copied' : null, can.image ? 'moved to host and disk' : null].filter((one) => one !== null)
  const cannot = [can.trim ? null : 'cut', can.copy ? null : 'copied', can.image ? null : 'moved'].filter((one) => one !== null)
  const first = list.length === 0 ? 'stays where it is' : `can be ${list.join(', ')}`
  return cannot.length === 0 ? first : `${first}; cannot be ${cannot.join(' or ')}: what would need it is recomputed`
}

function exactLines(exact: readonly ProbeAnswer[]): readonly (readonly [string, string])[] {
  if (exact.length === 0) return [['exact', 'not probed yet on this machine: a server probes once in the background; until then a resume counts as not exact']]
  return exact.slice(-EXACT_SHOWN_MAX).map((one): readonly [string, string] => {
    const { answer, because, lanes, laneTokens, chunkTokens, threads, flashAttention, extraBuffers, rowUnit } = one
    const needs = wordsOf({ extraBuffers, rowUnit, flashAttention })
    return ['exact', `${answer} with ${lanes} lanes of ${laneTokens}, chunks of ${chunkTokens}, threads ${threads}, ${needs}: ${because}`]
  })
}

function fitsText(fits: readonly Fit[], availableBytes: number): string {
  const free = `of ${size(availableBytes)} free`
  const some = fits.filter(({ lanes }) => lanes > 0)
  if (some.length === 0) return `nothing: weights and one lane need more than what is left ${free}`
  return `about ${some.map(({ lanes, laneTokens }) => `${lanes}${lanes === LANES_MAX ? ' (the most)' : ''} ${lanes === 1 ? 'lane' : 'lanes'} of ${laneTokens} tokens`).join(', or ')} ${free}`
}
