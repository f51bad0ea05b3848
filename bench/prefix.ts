/**
 * Owns the bench of a prefix that many share: programs with one system prompt arrive together, of one tenant or of two,
 * and the prompt tokens that were computed are counted against the least there could be. What that is, is found with the
 * model's own tokenizer, apart from the server. Each round has a system prompt that nobody has seen.
 */
import { setMaxListeners } from 'node:events'
import { columns } from '../src/core/explain/explain-text.ts'
import { Llama } from '../src/engine/llama/llama.ts'
import { measure } from '../src/engine/measure.ts'
import { templateOf } from '../src/engine/model-template.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { estimate, median } from '../src/eval/stats.ts'
import { resolveModel } from '../src/models/resolve.ts'
import { bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { serve, type Served } from './served.ts'
import { streamed } from './token-stream.ts'

const PROGRAMS = 16
const PREFIX_TOKENS = 1_500
const TENANT_COUNTS = [1, 2] as const
const ROUNDS = 5
const ROUNDS_QUICK = 1
const OUTPUT_TOKENS = 8
/** No two of the programs go on alike. */
const LETTERS = 'ABCDEFGHIJKLMNOP'
/** Less than the least is a miscount. */
const OFF_MAX = 0.02
const LANE_TOKENS = 2_048
const CHARACTERS_PER_TOKEN = 4.57

const KEYS = ['first-tenants-key', 'second-tenants-key'] as const

const NOT_MEASURED = [
  'programs that arrive after their prefix has left the device',
  'prefixes that are on host only: they are computed',
  'other models; accelerators',
]

interface Asked { readonly key: string; readonly system: string; readonly user: string }
interface Round {
  readonly tenants: number
  readonly prefixTokens: number
  readonly idealTokens: number
  readonly computedTokens: number
  /** From the first request sent to the last one's first token; one program alone with a prompt as long. */
  readonly allMs: number
  readonly oneMs: number
}

export const prefix: Bench = {
  name: 'prefix',
  what: `prompt tokens computed for ${PROGRAMS} programs with one system prompt of ${PREFIX_TOKENS} tokens`,
  needsModel: true,
  run: async (world) => {
    setMaxListeners(0, world.signal)
    const { path, name } = await resolveModel({ model: world.model, env: process.env, signal: world.signal })
    const tokenizer = new PromptTokens(path)
    let server: Served | null = null
    try {
      server = await serve(configOf(world.model), world.signal, { key: KEYS[0] })
      const rounds: Round[] = []
      for (let round = 0; round < (world.quick ? ROUNDS_QUICK : ROUNDS); round += 1) {
        for (const tenants of TENANT_COUNTS) rounds.push(await play(world, server.url, name, tokenizer, rounds.length, tenants))
      }
      return resultOf(rounds)
    } finally {
      await server?.close()
      tokenizer.dispose()
    }
  },
}

/** A lane for each program, and the one that is kept spare. */
const configOf = (model: string): Readonly<Record<string, unknown>> => ({
  tenants: KEYS.map((key, i) => ({ name: `tenant-${i + 1}`, key })),
  engines: [{ id: 'local', kind: 'embedded', model, lanes: PROGRAMS + 1, laneTokens: LANE_TOKENS }],
})

async function play(world: BenchWorld, url: string, model: string, tokenizer: PromptTokens, round: number, tenants: number): Promise<Round> {
  const ask = (asked: Asked, program: string) => streamed(
    url, { 'authorization': `Bearer ${asked.key}`, 'x-program-id': program, 'x-program-final': 'true' },
    { model, messages: messagesOf(asked), max_tokens: OUTPUT_TOKENS, temperature: 0, seed: 1 }, world.signal)
  const alone = await ask({ key: KEYS[0], system: systemText(2 * round + 1), user: 'Program 0: what is told here?' }, `alone-${round}`)
  const system = systemText(2 * round)
  const calls = Array.from({ length: PROGRAMS }, (_, i): Asked => ({ key: KEYS[i % tenants] ?? KEYS[0], system, user: `${LETTERS[i] ?? ''} is my letter. What is told of number ${i}?` }))
  const streams = await Promise.all(calls.map((asked, i) => ask(asked, `program-${round}-${i}`)))
  const prompts = calls.map((asked) => tokenizer.of(asked))
  const promptTokens = prompts.reduce((sum, tokens) => sum + tokens.length, 0)
  const said = streams.reduce((sum, stream) => sum + stream.promptTokens, 0)
  if (said !== promptTokens) throw new Error(`the server counts ${said} tokens of prompt, the tokenizer ${promptTokens}`)
  const prefixTokens = sharedBy(prompts)
  const found = {
    tenants, prefixTokens,
    idealTokens: tenants * prefixTokens + promptTokens - PROGRAMS * prefixTokens,
    computedTokens: streams.reduce((sum, stream) => sum + stream.promptTokens - stream.cachedTokens, 0),
    allMs: Math.max(...streams.map(({ eventMs }) => eventMs[0] ?? Infinity)) - Math.min(...streams.map(({ sentMs }) => sentMs)),
    oneMs: (alone.eventMs[0] ?? Infinity) - alone.sentMs,
  }
  world.say(`${tenants} ${tenants === 1 ? 'tenant' : 'tenants'}: ${found.computedTokens} tokens computed, ${found.idealTokens} at least`)
  return found
}

const messagesOf = ({ system, user }: Asked) => [{ role: 'system', content: system }, { role: 'user', content: user }] as const

/** Different from the first word on for each number. */
function systemText(number: number): string {
  const passages = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`)
  const turned = [...passages.slice(number % passages.length), ...passages.slice(0, number % passages.length)].join('\n')
  const characters = Math.round(PREFIX_TOKENS * CHARACTERS_PER_TOKEN)
  return `Handbook ${number}.\n${turned.repeat(1 + Math.floor(characters / turned.length)).slice(0, characters)}`
}

// ---------------------------------------------------------------- the least there could be

/** The model's tokenizer and template, without a server. */
class PromptTokens {
  readonly #llama: Llama

  constructor(modelPath: string) {
    this.#llama = Llama.load({ modelPath, lanes: 1, laneTokens: 256, batchTokens: 16, threads: 1, flashAttention: false, extraBuffers: false, libraryDir: null })
  }

  of(asked: Asked): Int32Array {
    const call = {
      model: '', messages: messagesOf(asked).map((message) => ({ ...message, toolCalls: [], toolCallId: null })), tools: [], toolChoice: 'none',
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: null,
    }
    const measured = measure(this.#llama, templateOf(this.#llama), JSON.stringify(call), [], { contextTokens: LANE_TOKENS, vocabulary: '' })
    if (!measured.ok) throw new Error(measured.why)
    return measured.prepared.tokens
  }

  dispose(): void {
    this.#llama.dispose()
  }
}

/** Leading tokens that all have. */
function sharedBy([first = new Int32Array(0), ...others]: readonly Int32Array[]): number {
  let count = 0
  while (count < first.length && others.every((other) => other[count] === first[count])) count += 1
  return count
}

// ---------------------------------------------------------------- the result

function resultOf(rounds: readonly Round[]): BenchResult {
  const of = (tenants: number): Round[] => rounds.filter((round) => round.tenants === tenants)
  const middle = (tenants: number, what: (round: Round) => number): string => String(Math.round(median(of(tenants).map(what))))
  const text = columns([
    ['', 'prefix', 'least', 'computed', 'over the least', 'all began, ms', 'one alone, ms'],
    ...TENANT_COUNTS.map((tenants) => [
      `${PROGRAMS} programs of ${tenants} ${tenants === 1 ? 'tenant' : 'tenants'}`,
      middle(tenants, ({ prefixTokens }) => prefixTokens), middle(tenants, ({ idealTokens }) => idealTokens),
      middle(tenants, ({ computedTokens }) => computedTokens), Math.max(...of(tenants).map(overOf)).toFixed(3),
      middle(tenants, ({ allMs }) => allMs), middle(tenants, ({ oneMs }) => oneMs),
    ]),
  ], 'lrrrrrr').join('\n')
  const bars = TENANT_COUNTS.map((tenants) => {
    const over = estimate(of(tenants).map(overOf), median)
    return bar(`computed-${tenants === 1 ? 'one-tenant' : 'two-tenants'}`, over, 'x', `within ${OFF_MAX} of 1 in every round`, of(tenants).every((round) => Math.abs(overOf(round) - 1) <= OFF_MAX))
  })
  return { bars, text, figures: { rounds }, notMeasured: NOT_MEASURED }
}

const overOf = ({ computedTokens, idealTokens }: Round): number => computedTokens / idealTokens
