/**
 * Random schemas, and what the tiny model puts out under them at random. ENTRACTE_SCHEMAS sets how many are tried,
 * ENTRACTE_SCHEMAS_SEED which.
 */
import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { answerGrammar } from '../../src/engine/grammar/answer-grammar.ts'
import { Grammars } from '../../src/engine/grammar/grammars.ts'
import { SchemaError } from '../../src/engine/grammar/schema-error.ts'
import type { TokenGrammar } from '../../src/engine/grammar/token-grammar.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import type { Row } from '../../src/engine/llama/llama.ts'
import { OutputPipeline } from '../../src/engine/output.ts'
import { Sampler } from '../../src/engine/sampler.ts'
import { LogitChanges } from '../../src/engine/token-rules.ts'
import { tinyModel } from '../real-model.ts'
import { isValid, sample } from './grammar/schemas.ts'

const CASES = Number(process.env['ENTRACTE_SCHEMAS'] ?? 200)
const SEED = Number(process.env['ENTRACTE_SCHEMAS_SEED'] ?? Date.now() % 2 ** 31)
const LANES = 16
const TOKENS_MAX = 400
const SAMPLING = { temperature: 1.5, topP: 1, topK: 0, minP: 0 }

let llama: Llama

before(async () => {
  llama = Llama.load({
    modelPath: await tinyModel(), lanes: LANES, laneTokens: 512, batchTokens: 64, threads: 1, flashAttention: false,
    extraBuffers: true, libraryDir: null,
  })
})

after(() => llama.dispose())

class Writer {
  readonly schema: Record<string, unknown>
  readonly #seed: number
  readonly #grammar: TokenGrammar
  readonly #changes: LogitChanges
  readonly #output: OutputPipeline
  readonly #sampler = new Sampler()
  next = 65
  position = 0
  ended = false

  constructor(schema: Record<string, unknown>, seed: number, grammars: Grammars) {
    this.schema = schema
    this.#seed = seed
    this.#grammar = grammars.begin(answerGrammar({ kind: 'schema', schema }, []))
    // The model has no sense: what closes something has to be likelier for any text to end.
    const bias = ['"', '}', ']'].flatMap((text) => [...llama.tokenize(text, false)]).map((token) => [token, 3 + seed % 3] as const)
    const rules = {
      presencePenalty: 0, frequencyPenalty: 0, repetitionPenalty: 1, bias, minTokens: 0, ignoreEos: false, stopTokens: [],
    }
    this.#changes = new LogitChanges(rules, [], llama.eogTokens)
    this.#output = new OutputPipeline({ tokenizer: llama, stops: [], callsTools: false })
  }

  /** Draws from the logits at its place. */
  draw(logits: Float32Array): void {
    this.#changes.apply(logits)
    const token = this.#sampler.sample(logits, SAMPLING, { seed: this.#seed, choice: 0, position: this.position }, this.#grammar)
    assert(token !== null, `${this.#grammar.fault ?? 'it leads nowhere'}: ${JSON.stringify(this.schema)}`)
    this.#grammar.accept(token)
    this.#changes.push(token)
    this.ended = this.#output.push(token).stopped
    this.next = token
    this.position++
  }

  get text(): string {
    return this.#output.end('stop').message.content
  }
}

/** Runs all of them together, a lane each. */
async function write(writers: readonly Writer[]): Promise<void> {
  for (let tokens = 0; tokens < TOKENS_MAX; tokens++) {
    const open = [...writers.entries()].filter(([, { ended }]) => !ended)
    if (open.length === 0) break
    const rows = open.map(([lane, { next, position }]): Row => ({ token: next, position, lane, logits: true }))
    await llama.decode(rows)
    for (const [row, [, writer]] of open.entries()) writer.draw(llama.logits(row))
  }
  for (const lane of writers.keys()) llama.cut(lane, 0)
}

test(`what ends by itself is valid under its schema (${CASES} schemas, seed ${SEED})`, async (t) => {
  const grammars = new Grammars(llama)
  const schemas = fc.sample(sample(3), { numRuns: CASES, seed: SEED }).map(({ schema }) => schema)
  const counts = { ended: 0, cut: 0, refused: 0 }
  for (let from = 0; from < CASES; from += LANES) {
    const writers = schemas.slice(from, from + LANES).flatMap((schema, i) => {
      try {
        return [new Writer(schema, SEED + from + i, grammars)]
      } catch (error) {
        if (!(error instanceof SchemaError)) throw error
        counts.refused++
        return []
      }
    })
    await write(writers)
    for (const writer of writers) {
      if (!writer.ended) {
        counts.cut++
        continue
      }
      counts.ended++
      const { text } = writer
      assert(isValid(JSON.parse(text), writer.schema), `${text} under ${JSON.stringify(writer.schema)}`)
    }
  }
  t.diagnostic(`${counts.ended} ended, ${counts.cut} were cut at ${TOKENS_MAX} tokens, ${counts.refused} schemas were refused`)
  assert(counts.ended > CASES * 0.6, `${counts.ended} of ${CASES} ended`)
})
