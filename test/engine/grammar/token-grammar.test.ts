import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { readGbnf } from '../../../src/engine/grammar/gbnf.ts'
import { Grammars } from '../../../src/engine/grammar/grammars.ts'
import { KEPT_BYTES_MAX, Machine } from '../../../src/engine/grammar/machine.ts'
import { GrammarError } from '../../../src/engine/grammar/schema-error.ts'
import { ITEMS_MAX, STRING_LENGTH_MAX } from '../../../src/engine/grammar/schema-rules.ts'
import { TokenBytes } from '../../../src/engine/grammar/token-bytes.ts'
import { ReadGrammar, TokenGrammar } from '../../../src/engine/grammar/token-grammar.ts'
import { toolCallGrammar } from '../../../src/engine/grammar/tool-call-grammar.ts'
import { OutputPipeline } from '../../../src/engine/output.ts'
import { CONTROL_X, EOT, FakeVocabulary, IM_END, VOCABULARY_SIZE } from '../vocabulary.ts'
import { Gbnf } from './gbnf.ts'
import { isValid, objectSample } from './schemas.ts'

const vocabulary = new FakeVocabulary()
const wide = {
  info: { vocabSize: VOCABULARY_SIZE },
  isEog: (token: number) => vocabulary.isEog(token),
  isControl: (token: number) => vocabulary.isControl(token),
  piece: (token: number) => vocabulary.piece(token, true),
}
const grammars = new Grammars(wide)

const tool = (parameters: Record<string, unknown>) => ({ name: 'f', description: '', parameters })

/** Whether the whole text is taken, token by token, and may end there. */
function takes(gbnf: string, text: string): boolean {
  const grammar = grammars.begin(gbnf)
  for (const token of vocabulary.tokenize(text, false)) {
    if (!grammar.allows(token)) return false
    grammar.accept(token)
  }
  return grammar.allows(IM_END)
}

function allowed(grammar: TokenGrammar): number[] {
  const logits = new Float32Array(VOCABULARY_SIZE)
  grammar.mask(logits)
  return [...logits.keys()].filter((token) => logits[token] !== -Infinity)
}

const refusal = (words: RegExp) => (thrown: unknown): boolean => {
  assert(thrown instanceof GrammarError, String(thrown))
  assert.match(thrown.message, words)
  return true
}

describe('a grammar over tokens', () => {
  test('takes what another reader of GBNF takes, and nothing else', () => {
    fc.assert(fc.property(objectSample(2), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
      const gbnf = toolCallGrammar([tool(schema)])
      const other = new Gbnf(gbnf)
      const pick = (below: number): number => (stream.next().value ?? 0) % below
      const text = other.draw(pick)
      assert(takes(gbnf, text), text)
      const units = [...text]
      units.splice(pick(units.length), pick(2), ['"', 'x', '1', ',', ' ', '}'][pick(6)] ?? '')
      const changed = units.join('')
      assert.equal(takes(gbnf, changed), other.matches(changed), changed)
    }), { numRuns: 60 })
  })

  test('a mask allows each token that is allowed by itself, and touches nothing else', () => {
    fc.assert(fc.property(objectSample(2), fc.infiniteStream(fc.nat()), ({ schema }, stream) => {
      const grammar = grammars.begin(toolCallGrammar([tool(schema)]))
      for (let tokens = 0; tokens < 60; tokens++) {
        const open = allowed(grammar)
        for (let token = 0; token < VOCABULARY_SIZE; token++) assert.equal(open.includes(token), grammar.allows(token), `${token}`)
        const token = open[(stream.next().value ?? 0) % open.length] ?? assert.fail('it leads nowhere')
        if (wide.isEog(token)) break
        grammar.accept(token)
      }
    }), { numRuns: 5 })
    const logits = Float32Array.from({ length: VOCABULARY_SIZE }, (_, token) => token / 7)
    logits[98] = -Infinity
    grammars.begin('root ::= [a-c]+').mask(logits)
    assert.equal(logits[97], Math.fround(97 / 7))
    assert.deepEqual([logits[98], logits[100]], [-Infinity, -Infinity])
  })

  test('an end comes only where it may, and stays where it was', () => {
    const grammar = grammars.begin('root ::= "ab"?')
    assert(grammar.allows(IM_END) && grammar.allows(EOT))
    grammar.accept(97)
    assert(!grammar.allows(IM_END))
    for (const token of [65, IM_END, -1, VOCABULARY_SIZE]) assert.throws(() => grammar.accept(token), refusal(/does not fit/))
    grammar.accept(98)
    assert.deepEqual(allowed(grammar), [IM_END, EOT])
  })

  test('a control token never passes for its text, but where it is read as that', () => {
    const grammar = grammars.begin('root ::= [^"]+')
    assert(!grammar.allows(CONTROL_X) && !allowed(grammar).includes(CONTROL_X))
    const tagged = new Grammars(wide, new Set(['<|x|>'])).begin('root ::= "<|x|>"')
    assert.deepEqual(allowed(tagged).filter((token) => vocabulary.isControl(token)), [CONTROL_X])
    tagged.accept(CONTROL_X)
    assert.deepEqual(allowed(tagged), [IM_END, EOT])
  })

  test('characters that come in pieces are taken where some character that begins so is', () => {
    for (const [set, good, bad] of [
      ['[é]', 'é', 'è'], ['[一-龥]', '中', 'あ'], ['[^一-龥]', 'あ', '中'], ['[\\U0001F600-\\U0001F64F]', '😀', '🚀'], ['.', '🚀', ''],
    ] as const) {
      for (const [text, fits] of [[good, true], [bad, false]] as const) {
        const grammar = grammars.begin(`root ::= ${set}`)
        const taken = [...Buffer.from(text)].every((byte) => grammar.allows(byte) && (grammar.accept(byte), true))
        assert.equal(taken && grammar.allows(IM_END), fits, `${set} ${text}`)
      }
    }
  })

  test('bytes that are no UTF-8 never pass: overlong forms, surrogates, what is beyond', () => {
    for (const bytes of [[0xc0], [0xc1], [0xe0, 0x80], [0xed, 0xa0], [0xf0, 0x80], [0xf4, 0x90], [0xf5], [0xff], [0x80], [0xc3, 0x41]]) {
      const grammar = grammars.begin('root ::= .*')
      const [last, ...before] = [...bytes].reverse()
      for (const byte of before.reverse()) grammar.accept(byte)
      assert(!grammar.allows(last ?? 0), Buffer.from(bytes).toString('hex'))
    }
    const whole = [[0xe0, 0x81, 0x81], [0xed, 0xa0, 0x80], [0xf0, 0x80, 0x81, 0x81], [0xf4, 0x90, 0x80, 0x80], [0xe4, 0xb8, 0xad]]
    const tokens = { info: { vocabSize: whole.length }, isEog: () => false, isControl: () => false, piece: (token: number) => Uint8Array.from(whole[token] ?? []) }
    const grammar = new Grammars(tokens).begin('root ::= .')
    assert.deepEqual(whole.map((_, token) => grammar.allows(token)), [false, false, false, false, true])
  })

  test('whatever bytes are drawn, the call is one and its arguments are valid', () => {
    const schema = {
      type: 'object', required: ['s', 'n', 'l'],
      properties: {
        s: { type: 'string', maxLength: 6 }, n: { type: 'number', minimum: -2, maximum: 40 },
        l: { type: 'array', items: { enum: ['é', null, 3] }, maxItems: 2 },
        o: { type: 'object', additionalProperties: { type: 'boolean' } },
      },
    }
    let whole = 0
    fc.assert(fc.property(fc.infiniteStream(fc.nat()), (stream) => {
      const grammar = grammars.begin(toolCallGrammar([tool(schema)]))
      const output = new OutputPipeline({ tokenizer: vocabulary, stops: [], callsTools: true })
      for (let tokens = 0, stopped = false; !stopped && tokens < 600; tokens++) {
        const open = allowed(grammar)
        // Brackets and quotes first now and then, so that it ends.
        const end = open.find((token) => '"}]'.includes(String.fromCharCode(token)))
        const pick = stream.next().value ?? 0
        const token = pick % 4 === 0 && end !== undefined ? end : open[pick % open.length]
        assert(token !== undefined, 'the grammar leads nowhere')
        stopped = output.push(token).stopped
        if (!stopped) grammar.accept(token)
      }
      const ended = output.end('stop')
      if (ended.keptTokens === 600) return
      whole++
      assert.equal(ended.finish, 'tool_calls', ended.keptText)
      assert(isValid(JSON.parse(ended.toolCalls[0]?.arguments ?? ''), schema), ended.keptText)
    }), { numRuns: 30 })
    assert(whole > 12, `${whole} of 30 ended`)
  })

  test('long strings, long lists and every format are counted', () => {
    const gbnf = toolCallGrammar([tool({
      type: 'object', required: ['s', 'l'],
      properties: {
        s: { type: 'string', minLength: STRING_LENGTH_MAX, maxLength: STRING_LENGTH_MAX },
        l: { type: 'array', items: { type: 'array', items: { type: 'integer', minimum: 1, maximum: 9 } }, maxItems: ITEMS_MAX },
        m: { type: 'array', items: { type: 'string', format: 'email' }, minItems: ITEMS_MAX },
      },
    })])
    const grammar = grammars.begin(gbnf)
    const write = (text: string): void => {
      for (const token of vocabulary.tokenize(text, false)) grammar.accept(token)
    }
    write('<tool_call>\n{"name": "f", "arguments": {"s": "')
    for (let chars = 1; chars < STRING_LENGTH_MAX; chars++) grammar.accept(120)
    assert(grammar.allows(120) && !grammar.allows(34))
    grammar.accept(120)
    assert(!grammar.allows(120) && grammar.allows(34))
    write('", "l": [[1], [], [2, 3]]}}\n</tool_call>')
    assert(grammar.allows(IM_END))
  })
})

describe('the notation', () => {
  test('comments, lines, groups, escapes and repetitions are read as llama.cpp reads them', () => {
    const gbnf = '# a comment\nroot ::= ( "a" # x\n | "b"\n )+ other{2,3}? \r\n other ::= [^a-z"\\]\\x00-\\x1f] | "\\u00e9" |\n "\\t\\U0001F600"\n'
    for (const good of ['a', 'ba', 'abXY', 'aéé', 'a\t😀\t😀X']) assert(takes(gbnf, good), good)
    for (const bad of ['', 'X', 'aX', 'aXXXX', 'a]X']) assert(!takes(gbnf, bad), bad)
    assert(takes('root ::= "ab"{2} [c-]{1,} . [a-]?', 'ababc-x') && !takes('root ::= "ab"{2}', 'ab'))
    for (const [text, fits] of [['aa', false], ['aaa', true], ['aaaaa', true]] as const) assert.equal(takes('root ::= "a"{3,}', text), fits)
    assert(takes('root ::= a\na ::= "x"\na ::= "y"', 'y'), 'of two rules with one name the later one holds')
  })

  test('what is no grammar is refused with its line', () => {
    for (const [bad, words] of [
      ['', /no rule "root"/], ['a ::= "root ::="', /no rule "root"/], ['root ::= other', /"other" is named and not there/],
      ['root ::= "a"\n x = "b"', /line 2: "::=" is expected/], ['root ::= "a', /ends too soon/], ['root ::= ("a"', /"\)" is expected/],
      ['root ::= [a', /ends too soon/], ['root ::= *', /nothing to repeat/], ['root ::= "a"{2', /"}" is expected/],
      ['root ::= "a"{3,2}', /ends before it begins/], ['root ::= "\\q"', /no escape/], ['root ::= "\\x4"', /hex digits/],
      ['root ::= <think>', /token by its name/], ['root ::= "a")', /line should end/], [`root ::= ${'('.repeat(100)}`, /nested deeper/],
      ['root ::= "a"{9999999}', /not counted/], ['root ::= "a\0"', /NUL/], ['root ::= []', /no text fits/],
      ['root ::= root "a" | "b"', /left recursion/], ['root ::= a\na ::= b root\nb ::= c\nc ::= ""', /left recursion/],
    ] as const) assert.throws(() => grammars.begin(bad), refusal(words), bad)
  })

  test('chains of rules are followed to their end, whatever their order', () => {
    const chain = (end: string, order: (rules: string[]) => string[]): string => {
      const rules = Array.from({ length: 5_000 }, (_, i) => `r${i} ::= "x" | r${i + 1} r${i + 1}`)
      return `root ::= r0 root | "y"\n${order([...rules, `r5000 ::= ${end}`]).join('\n')}`
    }
    for (const order of [(rules: string[]) => rules, (rules: string[]) => rules.reverse()]) {
      assert.throws(() => readGbnf(chain('"z"?', order)), refusal(/"root" leads to itself/))
      readGbnf(chain('"z"', order))
    }
    const begunMs = performance.now()
    const named = Array.from({ length: 20_000 }, (_, i) => `a${i}`)
    const forwards = named.map((name, i) => `${name} ::= ${named[i + 1] ?? '"z"?'}`)
    readGbnf(`root ::= (${[...named].reverse().join(' | ')}) "y"\n${forwards.join('\n')}`)
    assert(performance.now() - begunMs < 5_000, 'it takes too long to read')
  })
})

describe('a grammar that multiplies itself', () => {
  const timed = (work: () => void): void => {
    const begunMs = performance.now()
    work()
    const tookMs = performance.now() - begunMs
    assert(tookMs < 5_000, `${tookMs} ms`)
  }

  test('is held where it says little: what repeats the empty text, or says one thing twice', () => {
    timed(() => {
      for (const gbnf of [
        'root ::= ("a"*)*', 'root ::= ("a" | "a")*', 'root ::= (("a"?)+ | "a"*){0,3}', 'root ::= ((((("a"+)+)+)+)+)+',
        'root ::= ("a" | "aa" | "aaa")*', 'root ::= x*\nx ::= y\ny ::= "a" |',
      ]) assert(takes(gbnf, 'a'.repeat(2_000)) && !takes(gbnf, 'b'), gbnf)
    })
  })

  test('is refused when it is read, where its first characters open too many ways', () => {
    const doubled = Array.from({ length: 40 }, (_, i) => `r${i} ::= r${i + 1} "x" | r${i + 1} "y"`).join('\n')
    timed(() => {
      for (const bomb of [
        'root ::= "a" root "b" | "a" root "c" | "a"',
        `root ::= r0\n${doubled}\nr40 ::= "a"`,
        'root ::= (("a"?){0,5000}){0,5000}',
      ]) assert.throws(() => grammars.begin(bomb), refusal(/more than 2048 ways at once|more than 500000 steps/), bomb)
    })
  })

  test('is given up at the token that would take too long, and says so', () => {
    // The first look does not reach the place where it begins to multiply.
    const late = `root ::= [a-z]{500} tail\ntail ::= "x" tail "y" | "x" tail "z" | "x"`
    timed(() => {
      const grammar = grammars.begin(late)
      let taken = 0
      while (grammar.allows(120)) {
        grammar.accept(120)
        taken++
      }
      assert(taken > 500 && taken < 520, `${taken}`)
      assert.match(grammar.fault ?? '', /more than 2048 ways at once/)
      assert.deepEqual(allowed(grammar), [])
      assert.throws(() => grammar.accept(120), refusal(/ways at once/))
    })
  })

  test('takes a bounded time for whatever grammar there is', () => {
    const item = fc.oneof(
      fc.constantFrom('"a"', '"b"', '"ab"', '[ab]', '.', '"a" x', '"b" y', '. z', '""'),
      fc.constantFrom('("a" x)*', '("b" y)+', '("a" | "b" x)?', '(. y | "b"?){0,9}', '(z "a"){2,}'),
    )
    const body = fc.array(fc.array(item, { minLength: 1, maxLength: 4 }).map((parts) => parts.join(' ')), { minLength: 1, maxLength: 3 })
      .map((ways) => ways.join(' | '))
    let read = 0
    fc.assert(fc.property(fc.array(body, { minLength: 4, maxLength: 4 }), ([root, x, y, z]) => {
      const gbnf = `root ::= ${root}\nx ::= ${x}\ny ::= ${y}\nz ::= ${z}\n`
      timed(() => {
        try {
          const grammar = grammars.begin(gbnf)
          read++
          for (let tokens = 0; tokens < 40; tokens++) {
            const token = allowed(grammar).find((each) => !wide.isEog(each) && each < 128)
            if (token === undefined) break
            grammar.accept(token)
          }
        } catch (error) {
          if (!(error instanceof GrammarError)) throw error
        }
      })
    }), { numRuns: 100 })
    assert(read > 10, `${read} of 100 were read`)
  })

  test('may be long or deep: what is forgotten is worked out again, up to a depth that is named', () => {
    const long = grammars.begin('root ::= either{0,1000000}\neither ::= "{" | "}"')
    for (let tokens = 0; tokens < 30_000; tokens++) long.accept(tokens % 3 === 2 ? 125 : 123)
    assert.deepEqual(allowed(long), [123, 125, IM_END, EOT])
    const deep = grammars.begin('root ::= "{" root "}" | "a"')
    let depth = 0
    for (; depth < 15_000; depth++) deep.accept(123)
    deep.accept(97)
    for (; depth > 0; depth--) deep.accept(125)
    assert.deepEqual(allowed(deep), [IM_END, EOT])
    const tooDeep = grammars.begin('root ::= "{" root "}" | "a"')
    while (tooDeep.fault === null) if (tooDeep.allows(123)) tooDeep.accept(123)
    assert.match(tooDeep.fault, /nested too deeply: more than 20000 stacks/)
  })

  test('ends a text at the same token whatever other calls have worked out or had forgotten', () => {
    // Tokens 0 and 1 are one character, the others many.
    const pieces = ['a', 'b', ...Array.from({ length: 60 }, (_, i) => Array.from({ length: 30 + i * 5 }, (_, at) => 'ab'[(at * at + i * at) % 7 % 2]).join(''))]
    const tokens = { info: { vocabSize: pieces.length }, isEog: () => false, isControl: () => false, piece: (token: number) => Buffer.from(pieces[token] ?? '') }
    const gbnf = 'root ::= [ab]* "a" [ab]{400}'
    const list = [...pieces.keys()].slice(2)
    const outcome = (engine: Grammars): string[] => {
      const grammar = engine.begin(gbnf)
      return list.map((token) => {
        if (grammar.allows(token)) grammar.accept(token)
        return grammar.fault ?? 'goes on'
      })
    }
    const cold = outcome(new Grammars(tokens))
    assert(cold[0] === 'goes on' && /more than 500000 steps/.test(cold.at(-1) ?? ''), cold.at(-1))
    const warm = new Grammars(tokens)
    const goesOn = cold.filter((outcome) => outcome === 'goes on').length
    for (const read of [list.slice(0, goesOn + 1), list, list]) {
      const other = warm.begin(gbnf)
      for (const char of read.flatMap((token) => [...pieces[token] ?? ''])) other.accept(char === 'a' ? 0 : 1)
      assert.deepEqual(outcome(warm), cold)
    }
  })

  test('is found too deep at one depth, forgotten between or not', () => {
    const depthIn = (engine: Grammars): number => {
      const grammar = engine.begin('root ::= "{" root "}" | "a"')
      let depth = 0
      for (; grammar.allows(123); depth++) grammar.accept(123)
      return depth
    }
    const warm = new Grammars(wide)
    const depths = [depthIn(new Grammars(wide)), ...Array.from({ length: 6 }, () => depthIn(warm))]
    assert.deepEqual(new Set(depths), new Set([19_999]))
  })

  test('keeps no more than it may, and what it says stays the same', () => {
    const machine = new Machine(readGbnf('root ::= [ab]* "a" [ab]{1900}'))
    const grammar = new TokenGrammar(new ReadGrammar(machine, new TokenBytes(wide, new Set())))
    let text = ''
    let drawn = 7
    for (let tokens = 0; tokens < 4_000; tokens++) {
      drawn = Math.imul(drawn, 1_103_515_245) + 12_345 >>> 0
      const token = 97 + (drawn >>> 16) % 2
      grammar.accept(token)
      text += String.fromCharCode(token)
      assert.equal(grammar.allows(IM_END), text.at(-1_901) === 'a')
      assert(machine.keptBytes < KEPT_BYTES_MAX + 1024 * 1024, `${machine.keptBytes} bytes`)
    }
    assert(machine.age > 0, 'all was kept')
  })
})
