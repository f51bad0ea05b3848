import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { OutputPipeline } from '../../src/engine/output.ts'
import type { OutputEnd, OutputOptions } from '../../src/engine/output.ts'
import { FORMATS } from '../../src/engine/tool-format/choose.ts'
import { writeMessage } from '../../src/engine/tool-format/format.ts'
import type { ToolFormat } from '../../src/engine/tool-format/format.ts'
import { planCall } from '../../src/engine/call-plan.ts'
import { valueCallGrammar } from '../../src/engine/grammar/value-call-grammar.ts'
import type { ToolDefinition } from '../../src/protocol/chat.ts'
import type { WirePart } from '../../src/protocol/engine.ts'
import { Gbnf } from './grammar/gbnf.ts'
import { isValid } from './grammar/schemas.ts'

const TOOLS: readonly ToolDefinition[] = ['find', 'stop'].map((name) => ({
  name, description: '',
  parameters: { type: 'object', properties: { city: { type: 'string' }, days: { type: 'integer' } } },
}))

const THINK = { open: '<think>', close: '</think>' }

/** What a client has put together, and whether a call began with its name and went on without. */
interface Seen { readonly content: string; readonly reasoning: string; readonly calls: readonly (readonly [string, string])[] }

function assembled(parts: readonly WirePart[]): Seen {
  const calls: [string, string][] = []
  const said = { content: '', reasoning: '' }
  for (const part of parts) {
    if (part.kind === 'text') said.content += part.text
    else if (part.kind === 'reasoning') said.reasoning += part.text
    else {
      if (part.name !== null) assert.equal(calls.push([part.name, '']) - 1, part.index)
      const call = calls[part.index]
      assert(call !== undefined, 'a call begins with its name')
      call[1] += part.arguments
    }
  }
  return { ...said, calls }
}

type Options = Partial<Omit<OutputOptions, 'tokenizer'>>

/** Each piece is one token; the parts of the first `silent` are seen by nobody. */
function run(pieces: readonly Uint8Array[], options: Options, silent = 0): OutputEnd & { readonly shown: readonly WirePart[] } {
  const output = new OutputPipeline({
    tokenizer: {
      tokenize: () => new Int32Array(), isEog: () => false, isControl: () => false,
      piece: (token) => pieces[token] ?? new Uint8Array(),
    },
    stops: [], callsTools: true, tools: TOOLS, ...options,
  })
  const shown = pieces.flatMap((_, token) => {
    const { parts } = output.push(token)
    return token < silent ? [] : [...parts]
  })
  const end = output.end('stop')
  return { ...end, shown: [...shown, ...end.parts] }
}

const seen = (text: string, options: Options): Seen => assembled(run([Buffer.from(text)], options).shown)

/** The same whole, at every cut, byte by byte, and with any beginning replayed in silence. */
function alike(text: string, options: Options): Seen {
  const bytes = Buffer.from(text)
  const whole = seen(text, options)
  for (let cut = 1; cut < bytes.length; cut++) {
    const pieces = [bytes.subarray(0, cut), bytes.subarray(cut)]
    const live = run(pieces, options)
    assert.deepEqual(assembled(live.shown), whole, `cut at byte ${cut} of ${text}`)
    const replayed = run(pieces, options, 1)
    assert.deepEqual(replayed.message, live.message)
    assert.deepEqual(live.shown.slice(live.shown.length - replayed.shown.length), replayed.shown)
  }
  const single = run([...bytes].map((byte) => Uint8Array.of(byte)), options)
  assert.deepEqual(assembled(single.shown), whole, `byte by byte of ${text}`)
  return whole
}

const formatOf = (name: string): ToolFormat => {
  const found = FORMATS.find((format) => format.name === name)
  assert(found !== undefined, name)
  return found
}

const A = '{"city": "Köln \\"}\\" [x]", "days": 3}'
const B = '{"city": "東京", "days": 1}'
const TWO: Seen['calls'] = [['find', A], ['stop', B]]

/** Form, what its models write of both calls behind some text, and that text. */
const WRITTEN: readonly (readonly [string, string, string])[] = [
  ['hermes', `Ich prüfe.\n<tool_call>\n{"name": "find", "arguments": ${A}}\n</tool_call>\n<tool_call>{"arguments": ${B}, "name": "stop"}</tool_call>`, 'Ich prüfe.'],
  ['qwen-coder', 'Gut.\n<tool_call>\n<function=find>\n<parameter=city>\nKöln "}" [x]\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n'
    + '<tool_call>\n<function=stop>\n<parameter=city>\n東京\n</parameter>\n<parameter=days>1</parameter>\n</function>\n</tool_call>', 'Gut.'],
  ['glm', 'Gut.\n<tool_call>find\n<arg_key>city</arg_key>\n<arg_value>Köln "}" [x]</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>'
    + '<tool_call>stop<arg_key>city</arg_key><arg_value>東京</arg_value><arg_key>days</arg_key><arg_value>1</arg_value></tool_call>', 'Gut.'],
  ['mistral-list', `Gut.[TOOL_CALLS][{"name": "find", "arguments": ${A}, "id": "call00001"}, {"name": "stop", "arguments": ${B}}]`, 'Gut.'],
  ['mistral', `Gut.[TOOL_CALLS]find[ARGS]${A}[TOOL_CALLS]stop[CALL_ID]a1b2c3d4e[ARGS]${B}`, 'Gut.'],
  ['mistral', `[TOOL_CALLS] [{"name": "find", "arguments": ${A}},{"name": "stop", "arguments": ${B}}]`, ''],
  ['granite', `<|tool_call|>[{"name": "find", "arguments": ${A}}, {"name": "stop", "arguments": ${B}}]`, ''],
  ['command-r', `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "find", "parameters": ${A}},\n    {"tool_call_id": "1", "tool_name": "stop", "parameters": ${B}}\n]<|END_ACTION|>`, ''],
  ['toolcall', `<TOOLCALL>[{"name": "find", "arguments": ${A}}, {"name": "stop", "arguments": ${B}}]</TOOLCALL>`, ''],
  ['tool-calls', `Gut.\n<tool_calls>\n{"name": "find", "arguments": ${A}}\n{"name": "stop", "arguments": ${B}}\n</tool_calls>`, 'Gut.'],
  ['gigachat', `Gut.<|function_call|>{"name": "find", "arguments": ${A}}<|function_call|>{"name": "stop", "arguments": ${B}}`, 'Gut.'],
  ['deepseek', `Gut.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>find<｜tool▁sep｜>${A}<｜tool▁call▁end｜><｜tool▁call▁begin｜>stop<｜tool▁sep｜>${B}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`, 'Gut.'],
  ['deepseek-r1', `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>find\n\`\`\`json\n${A}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>stop\n\`\`\`json\n${B}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`, ''],
  ['kimi', `Gut.<|tool_calls_section_begin|><|tool_call_begin|>functions.find:0<|tool_call_argument_begin|>${A}<|tool_call_end|><|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>${B}<|tool_call_end|><|tool_calls_section_end|>`, 'Gut.'],
  ['solar', `<|tool_calls|><|tool_call:begin|>call00001<|tool_call:name|>find<|tool_call:args|>${A}<|tool_call:end|><|tool_call:begin|>x<|tool_call:name|>stop<|tool_call:args|>${B}<|tool_call:end|>`, ''],
  ['functionary', `Gut.<function=find>${A}</function><function=stop>${B}</function>`, 'Gut.'],
  ['minimax', 'Gut.\n<minimax:tool_call>\n<invoke name="find">\n<parameter name="city">Köln "}" [x]</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n'
    + '<invoke name="stop">\n<parameter name="city">東京</parameter>\n<parameter name="days">1</parameter>\n</invoke>\n</minimax:tool_call>', 'Gut.'],
  ['dsml', 'Gut.\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name="find">\n<｜DSML｜parameter name="city" string="true">Köln "}" [x]</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
    + '<｜DSML｜invoke name="stop">\n<｜DSML｜parameter name="city" string="true">東京</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>', 'Gut.'],
  ['harmony', `Gut.<|channel|>commentary to=functions.find <|constrain|>json<|message|>${A}<|call|><|channel|>commentary to=functions.stop<|message|>${B}<|call|>`, 'Gut.'],
  ['apertus', `Gut.<|tools_prefix|>[{"find": ${A}}, {"stop": ${B}}]<|tools_suffix|>`, 'Gut.'],
  ['python', `Gut.<|tool_call_start|>[find(city='Köln "}" [x]', days=3), stop( city = "東京" , days=1 )]<|tool_call_end|>`, 'Gut.'],
  ['gemma', 'Gut.<|tool_call>call:find{city:<|"|>Köln "}" [x]<|"|>,days:3}<tool_call|><|tool_call>call:stop{city:<|"|>東京<|"|>,days:1}<tool_call|>', 'Gut.'],
  ['json', `[{"name": "find", "arguments": ${A}}, {"type": "function", "name": "stop", "parameters": ${B}}]`, ''],
  ['json', ` functools[{"name": "find", "arguments": ${A}}, {"name": "stop", "arguments": ${B}}]`, ''],
  ['llama3', `{"name": "find", "parameters": ${A}}\n{"type": "function", "name": "stop", "parameters": ${B}}`, ''],
  ['llama3', `Gut.<|python_tag|>{"name": "find", "parameters": ${A}}<|python_tag|>{"name": "stop", "parameters": ${B}}`, 'Gut.'],
]

describe('a form of tool calls', () => {
  test('every one is written here', () => {
    assert.deepEqual([...new Set(WRITTEN.map(([name]) => name))].sort(), FORMATS.map(({ name }) => name).sort())
  })

  for (const [name, text, content] of WRITTEN) {
    test(`${name} is read the same at every cut: ${text.slice(0, 40).replaceAll('\n', ' ')}`, () => {
      // Forms without marks are told from an answer in JSON by the names that were offered.
      const offered = ['json', 'llama3'].includes(name) ? [TOOLS] : [TOOLS, TOOLS.slice(1), TOOLS.slice(0, 1)]
      for (const tools of offered) {
        assert.deepEqual(alike(text, { toolFormat: formatOf(name), tools }), { content, reasoning: '', calls: TWO })
      }
      assert.equal(run([Buffer.from(text)], { toolFormat: formatOf(name) }).finish, 'tool_calls')
    })
  }

  test('what it writes of any message is read back as that message', () => {
    const given = fc.dictionary(fc.string({ maxLength: 4 }), fc.jsonValue({ maxDepth: 2 })).map((value) => JSON.stringify(value))
    const calls = fc.array(fc.tuple(fc.constantFrom('find', 'stop'), given), { minLength: 1, maxLength: 3 })
    const formats = FORMATS.filter(({ writing }) => writing !== null)
    fc.assert(fc.property(fc.constantFrom(...formats), calls, (format, called) => {
      const text = writeMessage(format, '', called.map(([name, own]) => ({ name, arguments: own })))
      const found = seen(text, { toolFormat: format })
      assert.deepEqual(found, { content: '', reasoning: '', calls: called }, text)
    }), { numRuns: 1_000 })
  })

  test('a call is streamed name first, its arguments as they come', () => {
    for (const [name, text] of WRITTEN) {
      const pieces = [...Buffer.from(text)].map((byte) => Uint8Array.of(byte))
      const { shown } = run(pieces, { toolFormat: formatOf(name), callsTools: true })
      const first = shown.filter((part) => part.kind === 'toolCall' && part.index === 0)
      assert(first.length >= 3, `${name}: ${first.length} pieces`)
      assert(first.every((part, i) => part.kind === 'toolCall' && (part.name !== null) === (i === 0)), name)
    }
  })
})

describe('what is no call', () => {
  test('is text, every character of it, in every form and at every cut', () => {
    const cut = (text: string): string[] => [0.3, 0.5, 0.8].map((share) => text.slice(0, Math.floor(text.length * share)))
    for (const [name, text, content] of WRITTEN) {
      const toolFormat = formatOf(name)
      for (const part of cut(text.slice(content.length))) {
        const { content: shown, calls } = alike(part, { toolFormat })
        if (calls.length === 0) assert.equal(shown, part, name)
      }
      for (const open of toolFormat.opens) {
        for (const broken of [`${open}nothing of the sort`, `${open}{"name": 1, "arguments": {}}`, `${open}\n\n`, `x ${open.slice(0, -1)}`]) {
          assert.deepEqual(alike(broken, { toolFormat }), { content: broken, reasoning: '', calls: [] }, name)
        }
      }
    }
  })

  test('an answer in JSON is no call of a form without marks', () => {
    for (const name of ['llama3', 'json']) {
      for (const text of [
        '{"name": "Ada", "parameters": {}}', '{"city": "Ulm"}', '{"name": "find"}', '[1, 2]', '{"name": "find", "parameters": 3}',
        'see {"name": "find", "parameters": {}}', '[{"name": "find"}, 7]', '{"name": "find", "parameters": [', '{}', ' \n',
      ]) {
        assert.deepEqual(alike(text, { toolFormat: formatOf(name) }), { content: text, reasoning: '', calls: [] }, text)
      }
    }
    // It is not held back until its end.
    const shown = run([Buffer.from('{"city": ')], { toolFormat: formatOf('llama3') }).shown
    assert.deepEqual(shown[0], { kind: 'text', text: '{"city": ' })
  })

  test('code of Llama 3 behind its tag stays text', () => {
    const text = '<|python_tag|>brave_search.call(query="x")'
    assert.equal(alike(text, { toolFormat: formatOf('llama3') }).content, text)
  })

  test('any mixture of marks and pieces is shown the same at every cut, and nothing is lost', () => {
    const piece = fc.constantFrom(
      ...FORMATS.flatMap(({ opens, tags }) => [...opens, ...tags]), '{"name": "find", "arguments": {}}', '{', '}', '[', ']', ', ',
      '{"a": 1}', 'find', '\n', ' ', 'é', '<parameter=city>', '</parameter>', '</function>', '<think>', '</think>', '<', '"',
    )
    fc.assert(fc.property(fc.constantFrom(...FORMATS), fc.array(piece, { maxLength: 7 }), fc.boolean(), (toolFormat, texts, thinks) => {
      const text = texts.join('')
      const reasoning = thinks ? { tags: THINK, opened: false } : null
      const found = alike(text, { toolFormat, reasoning })
      if (found.calls.length === 0 && !thinks) assert.equal(found.content, text)
    }), { numRuns: 600 })
  })
})

describe('a forced call of a form that writes no list of JSON', () => {
  const parameters = {
    type: 'object', required: ['text', 'n', 'kind'],
    properties: {
      text: { type: 'string', description: 'x' }, n: { type: 'integer', minimum: -3, maximum: 12 }, kind: { type: 'string', enum: ['a b', 'c'] },
      more: { type: 'array', items: { type: ['string', 'null'] }, maxItems: 2 }, on: { type: 'boolean' },
    },
  }
  const tools = [{ name: 'find', description: '', parameters }, { name: 'stop', description: '', parameters: { type: 'object', properties: {} } }]

  test('is read back as a call with valid arguments, whatever is drawn', () => {
    const forms = FORMATS.filter(({ values, forced }) => values !== undefined || forced !== undefined)
    assert.deepEqual(forms.map(({ name }) => name).sort(), ['dsml', 'glm', 'kimi', 'minimax', 'qwen-coder', 'solar'])
    for (const format of forms) {
      const plan = planCall({
        model: 'm', messages: [], tools, toolChoice: 'required', stop: [], maxTokens: null, sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 },
      }, format)
      assert.equal(plan.toolFormat, format)
      const grammar = new Gbnf(plan.grammar ?? '')
      fc.assert(fc.property(fc.infiniteStream(fc.nat()), (stream) => {
        const text = grammar.draw((below) => (stream.next().value ?? 0) % below, 40)
        const { content, calls } = seen(text, { toolFormat: format, tools })
        assert.deepEqual([content, calls.length], ['', 1], text)
        const [name, given] = calls[0] ?? assert.fail()
        assert(isValid(JSON.parse(given), tools.find((tool) => tool.name === name)?.parameters ?? {}), `${given} of ${text}`)
      }), { numRuns: 100 })
    }
  })

  test('takes any text up to the mark, also what nearly is the mark', () => {
    const grammar = new Gbnf(valueCallGrammar(tools, formatOf('glm').values ?? assert.fail()) ?? assert.fail())
    const written = (text: string): string =>
      `<tool_call>find\n<arg_key>text</arg_key>\n<arg_value>${text}</arg_value>\n<arg_key>n</arg_key>\n<arg_value>3</arg_value>\n<arg_key>kind</arg_key>\n<arg_value>c</arg_value>\n</tool_call>`
    for (const text of ['', 'Ulm', '<b>\n"é"', '</arg_value', '<</arg_val<', '</arg_value x>']) {
      assert(grammar.matches(written(text)), text)
      const [, given = ''] = seen(written(text), { toolFormat: formatOf('glm'), tools }).calls[0] ?? []
      assert.equal((JSON.parse(given) as { text: string }).text, text)
    }
    assert(!grammar.matches(written('a</arg_value>b')))
  })
})

describe('values that are written as text', () => {
  const given = (value: string, parameters: Record<string, unknown>): string => {
    const text = `<tool_call>\n<function=find>\n<parameter=v>\n${value}\n</parameter>\n</function>\n</tool_call>`
    const tools = [{ name: 'find', description: '', parameters }]
    return seen(text, { toolFormat: formatOf('qwen-coder'), tools }).calls[0]?.[1] ?? 'no call'
  }
  const typed = (type: string): Record<string, unknown> => ({ type: 'object', properties: { v: { type } } })

  test('are what the parameter says they are', () => {
    assert.equal(given('12', typed('string')), '{"v": "12"}')
    assert.equal(given('12', typed('integer')), '{"v": 12}')
    assert.equal(given('{"a":[1,true]}', typed('object')), '{"v": {"a": [1, true]}}')
    assert.equal(given('True', typed('boolean')), '{"v": true}')
    assert.equal(given('a\n b\n', typed('string')), '{"v": "a\\n b\\n"}')
  })

  test('that are no JSON are text, whatever is declared', () => {
    assert.equal(given('Ulm', {}), '{"v": "Ulm"}')
    assert.equal(given('1 and 2', typed('integer')), '{"v": "1 and 2"}')
  })
})

describe('an answer in channels', () => {
  const CHANNELS = { open: '<|channel|>analysis<|message|>', close: '<|end|>', inChannels: true } as const
  const answer: Options = { toolFormat: formatOf('harmony'), reasoning: { tags: CHANNELS, opened: false } }
  const NEXT = '<|end|><|start|>assistant'

  test('is reasoning, text and calls, whichever of them come, at every cut', () => {
    const thought = `<|channel|>analysis<|message|>weil é${NEXT}`
    const call = `<|channel|>commentary to=functions.find <|constrain|>json<|message|>${A}`
    const inTemplate = ` to=functions.find<|channel|>commentary json<|message|>${A}<|call|>`
    for (const [text, found] of [
      ['<|channel|>final<|message|>Ja.', { content: 'Ja.', reasoning: '', calls: [] }],
      [`${thought}<|channel|>final<|message|>Ja.\n<b>`, { content: 'Ja.\n<b>', reasoning: 'weil é', calls: [] }],
      [`${thought}${call}`, { content: '', reasoning: 'weil é', calls: [['find', A]] }],
      [`${thought}${call}<|call|>`, { content: '', reasoning: 'weil é', calls: [['find', A]] }],
      [inTemplate, { content: '', reasoning: '', calls: [['find', A]] }],
      [`<|channel|>commentary<|message|>I look.${NEXT}${call}<|end|>`, { content: 'I look.', reasoning: '', calls: [['find', A]] }],
      [`${thought}${thought}<|channel|>final<|message|>Ja.`, { content: 'Ja.', reasoning: 'weil é\nweil é', calls: [] }],
      [`<|channel|>analysis<|message|>a<|en`, { content: '', reasoning: 'a<|en', calls: [] }],
    ] as const) assert.deepEqual(alike(text, answer), found, text)
  })

  test('that has no headings, or odd ones, is text', () => {
    for (const text of ['Ja.', '<|message|>x', ' to be or not', `<|channel|>final\n<|message|>x`, `<|channel|>${'y'.repeat(300)}<|message|>x`, '<|channel|>fin', '<|start|>', ' ']) {
      assert.deepEqual(alike(text, answer), { content: text, reasoning: '', calls: [] }, text)
    }
  })

  test('is told the same at every cut, whatever it is made of', () => {
    const piece = fc.constantFrom(
      '<|channel|>', 'analysis', 'final', 'commentary', ' to=functions.find', '<|message|>', '<|end|>', '<|start|>assistant', '<|call|>',
      '{"a": 1}', 'x', '\n', ' ', '<|constrain|>json', 'é',
    )
    fc.assert(fc.property(fc.array(piece, { maxLength: 12 }), (texts) => { alike(texts.join(''), answer) }), { numRuns: 400 })
  })
})

describe('values that are nearly JSON', () => {
  const given = (name: string, text: string): string => seen(text, { toolFormat: formatOf(name) }).calls[0]?.[1] ?? 'no call'

  test('are told as JSON: words, numbers, lists, objects and text of any quotes', () => {
    for (const [written, told] of [
      ["a=True, b=None, c=false, d=-1.5e3", '{"a": true, "b": null, "c": false, "d": -1.5e3}'],
      [`a=["x", 'y', []], b={"k": {'l': 1}}, c={}`, '{"a": ["x", "y", []], "b": {"k": {"l": 1}}, "c": {}}'],
      [String.raw`a='it\'s', b="a\n\u00e9\\", c='it's a "b"'`, String.raw`{"a": "it's", "b": "a\n\u00e9\\", "c": "it's a \"b\""}`],
      ['', '{}'],
    ] as const) assert.equal(given('python', `<|tool_call_start|>[find(${written})]<|tool_call_end|>`), told)
    const nested = '{a:{b:[<|"|>x\n<|"|>,{c:true}]},d:null,e:[]}'
    assert.equal(given('gemma', `<|tool_call>call:find${nested}<tool_call|>`), '{"a": {"b": ["x\\n", {"c": true}]}, "d": null, "e": []}')
    for (const name of ['python', 'gemma']) {
      for (const given of ['x', '01', '[1', '{1}', '1 2']) {
        const text = name === 'python' ? `<|tool_call_start|>[other(a=${given})]<|tool_call_end|>` : `<|tool_call>call:other{a:${given}}<tool_call|>`
        assert.deepEqual(alike(text, { toolFormat: formatOf(name) }), { content: text, reasoning: '', calls: [] }, text)
      }
    }
  })

  test('calls that no template writes are written so that they are read back', () => {
    const value = fc.dictionary(fc.stringMatching(/^[a-z_]{1,6}$/), fc.jsonValue({ maxDepth: 2 }))
    fc.assert(fc.property(fc.array(fc.tuple(fc.constantFrom('find', 'stop'), value), { minLength: 1, maxLength: 3 }), (called) => {
      const calls = called.map(([name, own]) => ({ name, arguments: JSON.stringify(own) }))
      const found = seen(writeMessage(formatOf('python'), '', calls), { toolFormat: formatOf('python') })
      assert.deepEqual(found.calls.map(([name, text]) => [name, JSON.parse(text)]), called.map(([name, own]) => [name, JSON.parse(JSON.stringify(own))]))
    }), { numRuns: 500 })
  })
})

describe('reasoning', () => {
  const think = (opened = false): Options => ({ toolFormat: formatOf('hermes'), reasoning: { tags: THINK, opened } })
  const CALL = `<tool_call>\n{"name": "find", "arguments": ${A}}\n</tool_call>`

  test('is told from the answer and from calls at every cut, without the line breaks of the form', () => {
    assert.deepEqual(
      alike(`<think>\nEin Satz.\n\nNoch é\n</think>\n\nJa.\n${CALL}`, think()),
      { content: 'Ja.', reasoning: 'Ein Satz.\n\nNoch é', calls: [['find', A]] },
    )
    assert.deepEqual(alike('\nweil\n</think>\n\nJa.', think(true)), { content: 'Ja.', reasoning: 'weil', calls: [] })
    assert.deepEqual(alike('<think>\n\n</think>\n\nJa.', think()), { content: 'Ja.', reasoning: '', calls: [] })
    assert.deepEqual(alike('<think>\na</think>\nJa.\n\nNein.', think()), { content: 'Ja.\n\nNein.', reasoning: 'a', calls: [] })
    assert.deepEqual(alike(' \n<think>a', think()), { content: '', reasoning: 'a', calls: [] })
  })

  test('a call in it is thought of, not called', () => {
    assert.deepEqual(alike(`<think>${CALL}</think>No.`, think()), { content: 'No.', reasoning: CALL, calls: [] })
  })

  test('tags further on are text, and so are all where none are known', () => {
    for (const text of ['Ja. <think>x</think>', '</think> a', '<thin', ' <', '  \n']) {
      assert.deepEqual(alike(text, think()), { content: text, reasoning: '', calls: [] }, text)
    }
    const text = '<think>x</think>'
    assert.equal(alike(text, { toolFormat: formatOf('hermes'), reasoning: null }).content, text)
  })

  test('stays reasoning where it is never closed', () => {
    assert.deepEqual(alike('<think>\na\n</thin', think()), { content: '', reasoning: 'a\n</thin', calls: [] })
  })
})
