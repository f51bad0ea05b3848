import assert from 'node:assert/strict'
import { after, before, test } from 'node:test'
import fc from 'fast-check'
import { Grammars } from '../../src/engine/grammar/grammars.ts'
import { openedCallsGrammar } from '../../src/engine/grammar/tool-call-grammar.ts'
import { LazyGrammar } from '../../src/engine/lazy-grammar.ts'
import { Llama } from '../../src/engine/llama/llama.ts'
import { OutputPipeline } from '../../src/engine/output.ts'
import { hermesWriting } from '../../src/engine/tool-format/hermes.ts'
import type { ToolDefinition } from '../../src/protocol/chat.ts'
import { tinyModel } from '../real-model.ts'

let llama: Llama
let grammars: Grammars

before(async () => {
  llama = Llama.load({
    modelPath: await tinyModel(), lanes: 1, laneTokens: 256, batchTokens: 32, threads: 1, flashAttention: false,
    extraBuffers: true, libraryDir: null,
  })
  grammars = new Grammars(llama)
})

after(() => llama.dispose())

const parameters = { type: 'object', properties: { n: { type: 'integer', minimum: 1, maximum: 9 }, on: { type: 'boolean' } }, required: ['n'] }
const TOOLS: readonly ToolDefinition[] = [{ name: 'set', description: '', parameters }]

/** An output that may call, under its grammar. */
class Writer {
  readonly output: OutputPipeline
  readonly grammar: LazyGrammar
  readonly tokens: number[] = []

  constructor(tools: readonly ToolDefinition[] = TOOLS, stops: readonly string[] = []) {
    this.output = new OutputPipeline({ tokenizer: llama, stops, callsTools: true, tools })
    this.grammar = new LazyGrammar({
      make: () => {
        const gbnf = openedCallsGrammar(tools, hermesWriting)
        return gbnf === null ? null : grammars.begin(gbnf)
      },
      tokenize: (text) => llama.tokenize(text, false),
      opened: () => this.output.openCall,
    })
  }

  push(token: number): void {
    this.grammar.accept(token)
    this.output.push(token)
    this.grammar.look()
    this.tokens.push(token)
  }

  write(text: string): this {
    for (const token of llama.tokenize(text, false)) this.push(token)
    return this
  }

  allowed(): number[] {
    const logits = new Float32Array(llama.info.vocabSize)
    this.grammar.mask(logits)
    return [...logits.keys()].filter((token) => logits[token] !== -Infinity)
  }
}

const tokenOf = (text: string): number => llama.tokenize(text, false)[0] ?? assert.fail('no token')

test('nothing is held until a call is opened; then it is, to the end of the answer', () => {
  const writer = new Writer().write('I say {"n": 77} <tool_call')
  assert.equal(writer.allowed().length, llama.info.vocabSize)
  writer.write('>')
  assert.deepEqual(writer.allowed(), [tokenOf('\n')])
  writer.write('\n{"name": "set", "arguments": {"n": ')
  assert(writer.allowed().includes(tokenOf('4')) && !writer.allowed().includes(tokenOf('0')))
  writer.write('4}}\n</tool_call>')
  const text = (token: number): string => Buffer.from(llama.piece(token, true)).toString()
  assert(writer.allowed().includes(llama.info.eos))
  assert(writer.allowed().every((token) => llama.isEog(token) || ['\n', ' '].includes(text(token))))
})

test('whatever is drawn after an opening ends as calls of the tools that were offered', () => {
  fc.assert(fc.property(fc.infiniteStream(fc.nat()), fc.nat(30), (stream, cut) => {
    const writer = new Writer().write('so <tool_call>')
    for (let drawn = 0; drawn < 300; drawn++) {
      const open = writer.allowed()
      const token = open[(stream.next().value ?? 0) % open.length] ?? assert.fail('it leads nowhere')
      if (llama.isEog(token)) break
      writer.push(token)
    }
    const replayed = new Writer()
    for (const token of writer.tokens.slice(0, 14 + cut)) replayed.push(token)
    for (const token of writer.tokens.slice(14 + cut)) {
      assert(replayed.grammar.allows(token), 'a resume is where it was')
      replayed.push(token)
    }
    const { message } = writer.output.end('stop')
    assert.equal(message.content, 'so ')
    for (const call of message.toolCalls) {
      const { n } = JSON.parse(call.arguments) as { n: number }
      assert(call.name === 'set' && n >= 1 && n <= 9)
    }
  }), { numRuns: 30 })
})

test('what may yet become a stop string counts as written', () => {
  const writer = new Writer(TOOLS, ['>a', '\nY']).write('<tool_call>\n')
  assert.deepEqual(writer.allowed(), [tokenOf('{')])
})

test('a call that cannot be held, or did not begin as one, stays free', () => {
  const odd = [{ name: 'set', description: '', parameters: { type: 'object', properties: { n: { not: {} } } } }]
  assert.equal(new Writer(odd).write('<tool_call>').allowed().length, llama.info.vocabSize)
  const late = new Writer()
  late.output.push(tokenOf('<'))
  for (const token of llama.tokenize('tool_call>x', false)) late.output.push(token)
  late.grammar.look()
  assert.equal(late.allowed().length, llama.info.vocabSize)
  late.write(' and <tool_call>')
  assert.deepEqual(late.allowed(), [tokenOf('\n')])
})
