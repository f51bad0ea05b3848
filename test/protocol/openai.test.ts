/** Reading a chat completion request: what becomes a call, and which field is named when it does not. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import fc from 'fast-check'
import { parseChat, type ChatRequest } from '../../src/protocol/openai.ts'

const USER = { role: 'user', content: 'Hi' }
const body = (more: object = {}): object => ({ model: 'm', messages: [USER], ...more })
const FUNCTION = { type: 'function', function: { name: 'search', description: 'looks', parameters: { type: 'object' } } }
const called = (...ids: readonly string[]): object =>
  ({ role: 'assistant', content: null, tool_calls: ids.map((id) => ({ id, type: 'function', function: { name: 'search', arguments: '{}' } })) })
const result = (id: string): object => ({ role: 'tool', tool_call_id: id, content: 'found' })

function read(json: unknown): ChatRequest {
  const parsed = parseChat(json)
  assert.ok(parsed.ok, parsed.ok ? '' : parsed.problem.body.error.message)
  return parsed.request
}

function refusal(json: unknown): { code: string; param: string | null; message: string } {
  const parsed = parseChat(json)
  assert.ok(!parsed.ok, 'it was accepted')
  return { code: parsed.problem.code, param: parsed.problem.body.error.param, message: parsed.problem.body.error.message }
}

describe('a request', () => {
  test('with everything said is read field by field', () => {
    const request = read(body({
      tools: [FUNCTION], tool_choice: { type: 'function', function: { name: 'search' } }, temperature: 0.5, top_p: 0.9, top_k: 40, min_p: 0.1,
      seed: 7, stop: ['a', 'b'], max_completion_tokens: 5, max_tokens: 9, stream: true, stream_options: { include_usage: true }, parallel_tool_calls: false,
    }))
    assert.deepEqual(request, {
      call: {
        model: 'm', messages: [{ role: 'user', content: 'Hi', toolCalls: [], toolCallId: null }],
        tools: [{ name: 'search', description: 'looks', parameters: { type: 'object' } }], toolChoice: { name: 'search' },
        sampling: { temperature: 0.5, topP: 0.9, topK: 40, minP: 0.1 }, stop: ['a', 'b'], maxTokens: 5,
      },
      stream: true, includeUsage: true, choices: 1, seed: 7, toolResults: [],
    })
  })

  test('with every optional field null is as one without them', () => {
    const names = ['tools', 'tool_choice', 'parallel_tool_calls', 'temperature', 'top_p', 'top_k', 'min_p', 'seed', 'stop', 'max_tokens', 'max_completion_tokens', 'stream', 'stream_options', 'n', 'logprobs', 'response_format', 'logit_bias', 'functions', 'audio']
    assert.deepEqual(read(body(Object.fromEntries(names.map((name) => [name, null])))), read(body()))
  })

  test('reads content as text or as parts of text, and developer as system', () => {
    const { call } = read(body({ messages: [{ role: 'developer', content: [{ type: 'text', text: 'a' }, { type: 'text', text: 'b' }] }, { role: 'user', name: 'ann', content: '' }] }))
    assert.deepEqual(call.messages.map(({ role, content }) => [role, content]), [['system', 'a\nb'], ['user', '']])
  })

  test('reads an echo the same whether its content is null, absent, empty or one empty part', () => {
    const echoes = [{ content: null }, {}, { content: '' }, { content: [{ type: 'text', text: '' }] }, { content: null, refusal: null }]
    const read1 = echoes.map((echo) => read(body({ messages: [USER, { ...called('c1'), content: undefined, ...echo }, result('c1')] })).call)
    for (const call of read1) assert.deepEqual(call, read1[0])
  })

  test('reads reasoning that a client sends back, and takes null and nothing for none', () => {
    const echo = (more: object) => read(body({ messages: [{ role: 'user', content: 'x' }, { role: 'assistant', content: 'y', ...more }, { role: 'user', content: 'z' }] })).call.messages[1]
    assert.equal(echo({ reasoning_content: 'because' })?.reasoning, 'because')
    for (const more of [{}, { reasoning_content: null }, { reasoning_content: '' }]) assert.ok(!('reasoning' in (echo(more) ?? {})))
    assert.equal(refusal(body({ messages: [{ role: 'assistant', content: 'y', reasoning_content: 1 }] })).code, 'invalid_request')
  })

  test('drops the name that some clients put on tool messages', () => {
    const plain = read(body({ messages: [USER, called('c1'), result('c1')] }))
    assert.deepEqual(read(body({ messages: [USER, called('c1'), { ...result('c1'), name: 'search' }] })), plain)
  })

  test('takes a seed of any size into 32 bits, the same one always', () => {
    assert.equal(read(body({ seed: 0 })).seed, 0)
    assert.equal(read(body({ seed: 2 ** 32 - 1 })).seed, 2 ** 32 - 1)
    fc.assert(fc.property(fc.oneof(fc.maxSafeInteger(), fc.constant(1e300), fc.constant(-1e20)), (seed) => {
      const first = read(body({ seed })).seed ?? -1
      assert.ok(Number.isInteger(first) && first >= 0 && first < 2 ** 32)
      assert.equal(read(body({ seed })).seed, first)
    }))
    assert.notEqual(read(body({ seed: 2 ** 40 })).seed, read(body({ seed: 2 ** 41 })).seed)
    assert.equal(refusal(body({ seed: 1.5 })).param, 'seed')
  })

  test('reads tool_choice in each of its forms', () => {
    const choice = (tool_choice: unknown, tools: readonly object[] = [FUNCTION]): unknown => read(body({ tools, tool_choice })).call.toolChoice
    assert.deepEqual([choice(undefined), choice('auto'), choice('none'), choice('required')], ['auto', 'auto', 'none', 'required'])
    assert.deepEqual([choice(undefined, []), choice('auto', [])], ['none', 'none'])
    assert.equal(refusal(body({ tool_choice: 'required' })).param, 'tool_choice')
    assert.equal(refusal(body({ tools: [FUNCTION], tool_choice: 'always' })).param, 'tool_choice')
    assert.match(refusal(body({ tools: [FUNCTION], tool_choice: { type: 'function', function: { name: 'other' } } })).message, /"other"/)
    assert.deepEqual(refusal(body({ tools: [FUNCTION], tool_choice: { type: 'allowed_tools', allowed_tools: {} } })), {
      code: 'unsupported_parameter', param: 'tool_choice.type',
      message: refusal(body({ tools: [FUNCTION], tool_choice: { type: 'allowed_tools', allowed_tools: {} } })).message,
    })
  })

  test('of any shape is read or refused, and never throws', () => {
    fc.assert(fc.property(fc.oneof(fc.jsonValue(), fc.record({ model: fc.jsonValue(), messages: fc.array(fc.record({ role: fc.constantFrom('user', 'assistant', 'tool', 'x'), content: fc.jsonValue(), tool_calls: fc.jsonValue() })), tools: fc.jsonValue(), stop: fc.jsonValue() }, { requiredKeys: [] })), (json) => {
      const parsed = parseChat(json)
      assert.equal(typeof parsed.ok, 'boolean')
    }), { numRuns: 300 })
  })
})

describe('a wrong type', () => {
  const cases: readonly [object, string, RegExp][] = [
    [{ model: 5 }, 'model', /expected string, received number/],
    [{ model: undefined }, 'model', /is missing \(string\)/],
    [{ messages: [] }, 'messages', />=1/],
    [{ messages: 'hi' }, 'messages', /expected array/],
    [{ messages: [{ role: 'robot', content: '' }] }, 'messages[0].role', /'assistant'/],
    [{ messages: [{ role: 'user' }] }, 'messages[0].content', /missing|expected/],
    [{ messages: [{ role: 'user', content: 5 }] }, 'messages[0].content', /expected string, received number, or expected array/],
    [{ messages: [{ role: 'user', content: [{ text: 'a' }] }] }, 'messages[0].content[0].type', /is missing/],
    [{ messages: [{ role: 'user', content: [{ type: 'text' }] }] }, 'messages[0].content[0].text', /is missing/],
    [{ messages: [USER, { role: 'assistant', tool_calls: [{ id: 'a', function: { name: 'f', arguments: {} } }] }] }, 'messages[1].tool_calls[0].function.arguments', /expected string/],
    [{ temperature: 2.5 }, 'temperature', /<=2/],
    [{ temperature: 'hot' }, 'temperature', /expected number/],
    [{ top_p: 0 }, 'top_p', />0/],
    [{ max_tokens: 0 }, 'max_tokens', />=1/],
    [{ max_tokens: 1.5 }, 'max_tokens', /int/],
    [{ stop: Array.from({ length: 17 }, () => 'a') }, 'stop', /<=16/],
    [{ stop: '' }, 'stop', />=1/],
    [{ stream: 'yes' }, 'stream', /expected boolean/],
    [{ n: 0 }, 'n', />=1/], [{ n: 9 }, 'n', /<=8/], [{ n: 1.5 }, 'n', /int/], [{ n: '2' }, 'n', /expected number/],
    [{ tools: [{ type: 'function' }] }, 'tools[0].function', /is missing/],
    [{ tools: [{ type: 'function', function: { name: 'a b' } }] }, 'tools[0].function.name', /letters/],
    [{ tools: [FUNCTION, FUNCTION] }, 'tools', /two tools are named "search"/],
  ]
  for (const [more, param, message] of cases) {
    test(`is told by its path: ${JSON.stringify(more).slice(0, 70)}`, () => {
      const told = refusal(body(more))
      assert.deepEqual([told.code, told.param], ['invalid_request', param])
      assert.match(told.message, message)
    })
  }
})

describe('what is not supported and would change the result', () => {
  const cases: readonly [object, string][] = [
    [{ best_of: 2 }, 'best_of'],
    [{ ignore_eos: true, grammar: 'root ::= "a"' }, 'ignore_eos'], [{ min_tokens: 4, tools: [FUNCTION], tool_choice: 'required' }, 'min_tokens'],
    [{ audio: {} }, 'audio'], [{ modalities: ['text', 'audio'] }, 'modalities'], [{ prediction: { type: 'content' } }, 'prediction'],
    [{ web_search_options: {} }, 'web_search_options'], [{ functions: [{ name: 'f' }] }, 'functions'], [{ function_call: { name: 'f' } }, 'function_call'],
    [{ guided_json: {} }, 'guided_json'], [{ tools: [FUNCTION], grammar: 'root ::= "a"' }, 'grammar'],
    [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] }, 'messages[0].content[0].type'],
    [{ messages: [USER, { role: 'assistant', content: 'a', audio: { id: 'x' } }] }, 'messages[1].audio'],
    [{ messages: [USER, { role: 'assistant', function_call: { name: 'f', arguments: '' } }] }, 'messages[1].function_call'],
    [{ tools: [FUNCTION], parallel_tool_calls: false }, 'parallel_tool_calls'],
    [{ tools: [{ type: 'custom', custom: { name: 'x' } }] }, 'tools[0].type'],
    [{ messages: [USER, { role: 'assistant', tool_calls: [{ id: 'a', type: 'custom', custom: {} }] }] }, 'messages[1].tool_calls[0].type'],
  ]
  for (const [more, param] of cases) {
    test(`is refused by name: ${param}`, () => {
      const told = refusal(body(more))
      assert.deepEqual([told.code, told.param], ['unsupported_parameter', param])
      assert.ok(told.message.includes(param.replace(/\.type$/, '')), told.message)
    })
  }

  test('is accepted where it asks for what happens anyway', () => {
    const harmless = {
      n: 1, logprobs: false, top_logprobs: 0, response_format: { type: 'text' }, logit_bias: {}, presence_penalty: 0, frequency_penalty: 0,
      modalities: ['text'], functions: [], function_call: 'auto', repetition_penalty: 1, min_tokens: 0, top_k: -1,
    }
    assert.deepEqual(read(body(harmless)), read(body()))
  })
})

describe('the tokens of an answer', () => {
  test('are read field by field', () => {
    const { call } = read(body({
      logprobs: true, top_logprobs: 3, logit_bias: { 5: -100, 7: 1.5 }, presence_penalty: -2, frequency_penalty: 0.5, repetition_penalty: 1.1,
      min_tokens: 2, ignore_eos: true, stop_token_ids: [9],
    }))
    assert.equal(call.topLogprobs, 3)
    assert.deepEqual(call.tokenRules, {
      presencePenalty: -2, frequencyPenalty: 0.5, repetitionPenalty: 1.1, bias: [[5, -100], [7, 1.5]], minTokens: 2, ignoreEos: true, stopTokens: [9],
    })
    assert.equal(read(body({ logprobs: true })).call.topLogprobs, 0)
  })

  const faults: readonly [object, string][] = [
    [{ logprobs: 2 }, 'logprobs'], [{ top_logprobs: 3 }, 'top_logprobs'], [{ logprobs: true, top_logprobs: 21 }, 'top_logprobs'],
    [{ logit_bias: { x: 1 } }, 'logit_bias.x'], [{ logit_bias: { 5: 101 } }, 'logit_bias.5'], [{ logit_bias: [1] }, 'logit_bias'],
    [{ logit_bias: Object.fromEntries(Array.from({ length: 1_025 }, (_, i) => [i, 1])) }, 'logit_bias'],
    [{ presence_penalty: 2.1 }, 'presence_penalty'], [{ frequency_penalty: '1' }, 'frequency_penalty'], [{ repetition_penalty: 0 }, 'repetition_penalty'],
    [{ min_tokens: -1 }, 'min_tokens'], [{ min_tokens: 5, max_tokens: 4 }, 'min_tokens'], [{ ignore_eos: 1 }, 'ignore_eos'],
    [{ stop_token_ids: 3 }, 'stop_token_ids'], [{ stop_token_ids: [-1] }, 'stop_token_ids[0]'],
  ]
  for (const [more, param] of faults) {
    test(`that cannot be read are told by their field: ${JSON.stringify(more).slice(0, 70)}`, () => {
      const told = refusal(body(more))
      assert.deepEqual([told.code, told.param], ['invalid_request', param])
    })
  }
})

describe('the form of an answer', () => {
  const formatOf = (more: object): unknown => read(body(more)).call.format
  const schema = { type: 'object', properties: { a: { type: 'string' } } }

  test('is read as JSON, as a schema, or as a grammar', () => {
    assert.equal(formatOf({ response_format: { type: 'text' } }), undefined)
    assert.deepEqual(formatOf({ response_format: { type: 'json_object' } }), { kind: 'json' })
    const asked = { type: 'json_schema', json_schema: { name: 'a', strict: true, schema } }
    assert.deepEqual(formatOf({ response_format: asked }), { kind: 'schema', schema })
    assert.deepEqual(formatOf({ response_format: asked, tools: [FUNCTION] }), { kind: 'schema', schema })
    assert.deepEqual(formatOf({ grammar: 'root ::= "a"' }), { kind: 'grammar', gbnf: 'root ::= "a"' })
    assert.deepEqual(formatOf({ grammar: 'root ::= "a"', tools: [FUNCTION], tool_choice: 'none' }), { kind: 'grammar', gbnf: 'root ::= "a"' })
  })

  const faults: readonly [object, string][] = [
    [{ response_format: 'json' }, 'response_format'], [{ response_format: { type: 'xml' } }, 'response_format.type'],
    [{ response_format: { type: 'json_schema' } }, 'response_format.json_schema'],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'a' } } }, 'response_format.json_schema.schema'],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'a b', schema } } }, 'response_format.json_schema.name'],
    [{ response_format: { type: 'json_schema', json_schema: { name: 'a', schema: [] } } }, 'response_format.json_schema.schema'],
    [{ grammar: 7 }, 'grammar'], [{ grammar: 'root ::= "a"', response_format: { type: 'json_object' } }, 'grammar'],
  ]
  for (const [more, param] of faults) {
    test(`that cannot be read is told by its field: ${JSON.stringify(more).slice(0, 70)}`, () => {
      const told = refusal(body(more))
      assert.deepEqual([told.code, told.param], ['invalid_request', param])
    })
  }

  test('may be nested only so deep', () => {
    let deep: object = {}
    for (let depth = 0; depth < 70; depth++) deep = { items: deep }
    const told = refusal(body({ response_format: { type: 'json_schema', json_schema: { name: 'a', schema: deep } } }))
    assert.deepEqual([told.code, told.param], ['unsupported_schema', 'response_format.json_schema.schema'])
  })
})

describe('tool results', () => {
  const linked = (...messages: readonly object[]): ChatRequest => read(body({ messages: [USER, ...messages] }))
  const faulty = (...messages: readonly object[]) => refusal(body({ messages: [USER, ...messages] }))

  test('are those after the last assistant message, and open what it called', () => {
    const { toolResults } = linked(called('a'), result('a'), called('b', 'c'), result('c'), result('b'))
    assert.deepEqual(toolResults, ['c', 'b'])
    const answered = linked(called('a'), result('a'), { role: 'assistant', content: 'so' }, USER)
    assert.deepEqual(answered.toolResults, [])
  })

  test('may be followed by a user message', () => {
    assert.deepEqual(linked(called('a'), result('a'), USER).toolResults, ['a'])
  })

  test('that are missing are named', () => {
    const told = faulty(called('a', 'b', 'c'), result('b'))
    assert.deepEqual([told.code, told.param], ['missing_tool_results', 'messages'])
    assert.match(told.message, /"a", "c"/)
    assert.equal(faulty(called('a')).code, 'missing_tool_results')
    assert.equal(faulty(called('a'), USER).code, 'missing_tool_results')
  })

  test('for a call that the message before did not make are refused', () => {
    const told = faulty(called('a'), result('a'), called('b'), result('b'), result('a'))
    assert.deepEqual([told.code, told.param], ['unknown_tool_call', 'messages[5].tool_call_id'])
    assert.equal(faulty(result('a')).code, 'unknown_tool_call')
    assert.equal(faulty({ role: 'assistant', content: 'x' }, result('a')).code, 'unknown_tool_call')
  })

  test('given twice are refused, and ids used twice in one message too', () => {
    assert.match(faulty(called('a'), result('a'), result('a')).message, /answered already/)
    assert.match(faulty(called('a', 'a'), result('a')).message, /two tool calls/)
  })
})
