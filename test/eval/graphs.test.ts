import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { defaultConfig } from '../../src/config.ts'
import { ORDER_NAMES } from '../../src/core/config.ts'
import type { AgentStep, AgentWorld, ProgramRecord } from '../../src/eval/agent-record.ts'
import { Corpus } from '../../src/eval/corpus.ts'
import { runDemo } from '../../src/eval/demo.ts'
import { runGraphAgent } from '../../src/eval/graph-agent.ts'
import { callsOf, loadGraphs, planGraphs, type GraphProgram } from '../../src/eval/graphs.ts'
import { loadMix } from '../../src/eval/mix.ts'
import { runMix, type ProgramOutcome } from '../../src/eval/mix-run.ts'
import { notesFor } from '../../src/eval/task.ts'
import { Toolbox } from '../../src/eval/tools.ts'
import { start } from '../../src/main.ts'
import { MODEL, proven, served } from '../serve/served.ts'
import { fakeServer, type Fake, type FakeOptions } from './fake-server.ts'

const GRAPHS = loadGraphs()
const [reader, search] = GRAPHS as [GraphProgram, GraphProgram]

interface Ran { readonly record: ProgramRecord; readonly fake: Fake; readonly steps: readonly AgentStep[] }

async function run(program: GraphProgram, options: FakeOptions = {}): Promise<Ran> {
  const fake = await fakeServer(options)
  const steps: AgentStep[] = []
  const world: AgentWorld = {
    endpoint: { url: fake.url, headers: { authorization: 'Bearer k' } }, model: 'fake', tokenScale: 2, toolbox: new Toolbox(), corpus: Corpus.load(),
    now: () => performance.now(), notify: (step) => steps.push(step), signal: new AbortController().signal,
  }
  try {
    return { record: await runGraphAgent({ id: program.name, program, seed: 7 }, world), fake, steps }
  } finally {
    await fake.close()
  }
}

/** Refuses what `when` says, as a server does once a join has fired. */
const refusing = (when: (node: string) => boolean, code = 'cancelled', status = 409): FakeOptions => ({
  instead: ({ headers }, response) => when(String(headers['x-program-call-id'] ?? ''))
    && Boolean(response.writeHead(status).end(JSON.stringify({ error: { message: 'gone', code } }))),
})
const reportsOf = (fake: Fake): readonly any[] => fake.seen.filter(({ path }) => path.endsWith('/graph')).map(({ body }) => body)
const callsIn = (fake: Fake): ReadonlyMap<string, Fake['seen'][number]> =>
  new Map(fake.seen.filter(({ path }) => path === '/v1/chat/completions').map((one) => [String(one.headers['x-program-call-id']), one]))

describe('the programs with joins', () => {
  test('are a map-reduce with a join of all, and a tree search with partial and any', () => {
    const rules = (program: GraphProgram): string[] => program.levels.flatMap(({ join }) => (join === null ? [] : [join.rule]))
    assert.deepEqual([rules(reader), rules(search)], [['all'], ['partial', 'any']])
    for (const { name, levels } of GRAPHS) {
      assert.equal(levels[0]?.begins, 'anew', name)
      assert.equal(levels.at(-1)?.outputTokens.length, 1, `${name} ends in one call`)
      for (const { join, outputTokens } of levels) {
        assert.equal(join === null, outputTokens.length === 1, `${name}: where there are branches, there is a join`)
        if (join?.rule === 'partial') assert.ok(join.atLeast < outputTokens.length)
      }
    }
  })
  test('are small beside the mix', () => {
    const written = GRAPHS.flatMap(({ levels }) => levels.flatMap(({ outputTokens }) => outputTokens)).reduce((sum, tokens) => sum + tokens, 0)
    assert.ok(written < 700 && GRAPHS.reduce((sum, program) => sum + callsOf(program), 0) < 15, `${written}`)
  })
  test('read other notes in every call of a level', () => {
    const corpus = Corpus.load()
    const notes = [1, 2, 3, 4].map((index) => notesFor(`reader-1 map ${index}`, corpus, 20))
    assert.equal(new Set(notes).size, notes.length)
  })
  test('arrive while the mix does, the same for the same seed', () => {
    const mix = loadMix()
    for (const seed of mix.seeds) {
      const planned = planGraphs(GRAPHS, mix, seed)
      assert.deepEqual(planGraphs(GRAPHS, mix, seed), planned)
      assert.ok(planned.every(({ atMs }) => atMs >= 0 && atMs < mix.arrivalMeanMs * mix.programs.length))
    }
    assert.notDeepEqual(planGraphs(GRAPHS, mix, 11), planGraphs(GRAPHS, mix, 12))
  })
})

describe('an agent with joins', () => {
  test('reports nodes, threads and the join of a map before its calls, and gives the reduce what they wrote', async () => {
    const { record, fake } = await run(reader)
    assert.equal(record.error, null)
    const [maps, reduce] = reportsOf(fake)
    assert.deepEqual(maps.nodes.map(({ kind, thread }: any) => `${kind} ${thread ?? ''}`), ['LLM map 1', 'LLM map 2', 'LLM map 3', 'LLM map 4', 'JOIN '])
    assert.deepEqual(maps.nodes[4], { id: 'map join', kind: 'JOIN', parents: ['map 1', 'map 2', 'map 3', 'map 4'], join: { rule: 'all' } })
    assert.deepEqual(reduce, { forks: [], nodes: [{ id: 'reduce', kind: 'LLM', thread: 'reduce', parents: ['map join'] }] })
    const paths = fake.seen.map(({ path }) => path)
    assert.ok(paths.indexOf('/v1/programs/reader-1/graph') < paths.indexOf('/v1/chat/completions'))
    const calls = callsIn(fake)
    assert.deepEqual([...calls].map(([node, { headers }]) => [node, headers['x-program-final']]).filter(([, final]) => final !== undefined), [['reduce', 'true']])
    assert.match(calls.get('reduce')?.body.messages[1].content, /map 1: All done\.\n.*map 4: All done\./s)
    assert.deepEqual([calls.get('reduce')?.body.max_completion_tokens, calls.get('reduce')?.headers['authorization']], [96, 'Bearer k'])
  })

  test('forks from the first path that a join left, and goes on in its thread', async () => {
    const { record, fake, steps } = await run(search, refusing((node) => ['idea 1', 'step 1', 'step 3'].includes(node)))
    assert.equal(record.error, null)
    const [root, ideas, next, answer] = reportsOf(fake)
    assert.deepEqual(root.forks, [])
    assert.deepEqual(ideas.forks, [1, 2, 3].map((index) => ({ thread: `idea ${index}`, from: 'root' })))
    assert.deepEqual(ideas.nodes[0].parents, ['root'])
    assert.deepEqual(ideas.nodes[3].join, { rule: 'partial', atLeast: 2 })
    assert.deepEqual(next.forks, [1, 2, 3].map((index) => ({ thread: `step ${index}`, from: 'idea 2' })))
    assert.deepEqual(answer, { forks: [], nodes: [{ id: 'answer', kind: 'LLM', thread: 'step 2', parents: ['step join'] }] })
    const asked = callsIn(fake).get('answer')?.body.messages
    assert.deepEqual(asked.map(({ role }: any) => role), ['system', 'user', 'assistant', 'user', 'assistant', 'user', 'assistant', 'user'])
    assert.match(asked[3].content, /idea 2/)
    assert.equal(record.graph?.joins, 2)
    assert.deepEqual(record.graph?.nodes.filter(({ wrote }) => wrote === null).map(({ node }) => node), ['idea 1', 'step 1', 'step 3'])
    assert.deepEqual([record.calls.length, steps.at(-1)?.kind, steps.at(-1)?.call], [5, 'done', 8])
  })

  test('takes a call whose stream ends with cancelled as one that was needed no more', async () => {
    const { record } = await run(search, {
      instead: ({ headers }, response) => headers['x-program-call-id'] === 'idea 3'
        && Boolean(response.writeHead(200).end('data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: {"error":{"message":"x","code":"cancelled"}}\n\n')),
    })
    assert.equal(record.error, null)
    assert.equal(record.graph?.nodes.find(({ node }) => node === 'idea 3')?.wrote, null)
  })

  const broken: readonly [string, GraphProgram, FakeOptions, RegExp][] = [
    ['a cancelled call that a join of all needs', reader, refusing((node) => node === 'map 2'), /HTTP 409.*gone/],
    ['a branch that was refused for another reason', search, refusing((node) => node === 'idea 2', 'queue_full', 429), /HTTP 429/],
    ['fewer calls than its join needs', search, refusing((node) => node.startsWith('idea') && node !== 'idea 1'), /idea: 1 of 3 calls are no join of 2/],
    ['a refused report', reader, { instead: ({ path }, response) => path.endsWith('/graph') && Boolean(response.writeHead(409).end('a cycle')) }, /the graph of reader-1: HTTP 409: a cycle/],
  ]
  for (const [what, program, options, why] of broken) {
    test(`ends on ${what} with its reason, and cancels its program`, async () => {
      const { record, fake, steps } = await run(program, options)
      assert.match(record.error ?? '', why)
      assert.equal(steps.at(-1)?.kind, 'failed')
      assert.ok(fake.seen.some(({ method, path }) => method === 'DELETE' && path === `/v1/programs/${program.name}`))
    })
  }
})

describe('an agent with joins, one of whose calls failed,', () => {
  test('lets none go on by itself', async () => {
    const { record, steps } = await run(reader, {
      instead: ({ headers }, response) => {
        const node = headers['x-program-call-id']
        if (node === 'map 1') setTimeout(() => response.writeHead(503).end('late'), 50)
        if (node === 'map 2') response.writeHead(503).end('at once')
        return node === 'map 1' || node === 'map 2'
      },
    })
    assert.match(record.error ?? '', /HTTP 503: late/)
    assert.deepEqual(steps.slice(-1), [{ program: 'reader-1', kind: 'failed', call: 2, calls: 5, tool: null }])
  })
})

describe('programs with joins on the tiny model', () => {
  test('write in two lanes, all at once, what each writes with nobody beside it', async () => {
    const server = await served()
    await proven(server)
    const go = async (prefix: string, graphs: readonly GraphProgram[]): Promise<readonly ProgramOutcome[]> => (await runMix({
      endpoint: { url: server.url, headers: {} }, model: MODEL, tokenScale: 2, arrivals: [], graphs: graphs.map((program) => ({ program, atMs: 0 })), seed: 1, prefix,
      notify: () => {}, signal: AbortSignal.timeout(60_000),
    })).programs
    const alone = [...await go('alone-', [reader]), ...await go('alone-', [search])]
    const together = await go('together-', GRAPHS)
    assert.deepEqual([...alone, ...together].map(({ record }) => record.error), [null, null, null, null])
    for (const one of [...alone, ...together]) {
      const joined = one.explanation.events.filter(({ what }) => what === 'joined')
      assert.deepEqual([one.explanation.stage, joined.length], ['completed', one.record.graph?.joins])
    }
    for (const [at, one] of alone.entries()) {
      const written = new Map(together[at]?.record.graph?.nodes.map((node) => [node.node, node]))
      const both = one.record.graph?.nodes.filter(({ node, asked, wrote }) => wrote !== null && written.get(node)?.asked === asked && written.get(node)?.wrote !== null) ?? []
      assert.ok(both.length >= 2, one.record.name)
      for (const { node, wrote } of both) assert.equal(written.get(node)?.wrote, wrote, `${one.record.name} ${node}`)
    }
  })
})

/** What the branches say that a join should find too late. */
const SLOW = { text: 'on and on '.repeat(200), tokensPerSecond: 40 }
const SCRIPT = { tokensPerSecond: 2_000, items: [{ match: 'search-1, (idea|step) 3', ...SLOW }, { match: 'search-1, step 2', ...SLOW }, { text: 'It is so, since it was so before.' }] }

describe('the demo on a real server', () => {
  const mix = loadMix()
  const chats = { ...mix, arrivalMeanMs: 3, programs: mix.programs.filter(({ calls }) => calls.every(({ tool }) => tool === null)) }

  async function demo(policy: string, json: boolean): Promise<{ readonly code: number; readonly out: string }> {
    let out = ''
    const code = await runDemo({ model: 'default', seed: null, policy, keep: false, json }, {
      mix: chats, signal: new AbortController().signal, print: (text) => { out += text }, screen: { redraws: false, columns: 80, write: () => {} },
      start: (raw) => start(defaultConfig({ ...raw, engines: [{ id: 'script', kind: 'scripted', script: SCRIPT }] })),
    })
    return { code, out }
  }

  for (const policy of ORDER_NAMES) {
    test(`ends its programs with joins under ${policy}, every join fired once, and losers cancelled`, async () => {
      const { code, out } = await demo(policy, true)
      const parsed = JSON.parse(out)
      assert.equal(code, 0, out)
      assert.deepEqual(parsed.arms.map(({ order }: any) => order), ['fcfs', policy])
      for (const { programs } of parsed.arms) {
        const joins = programs.flatMap(({ name, joins }: any) => (joins === null ? [] : [[name, joins]]))
        assert.deepEqual(joins, [
          ['reader-1', { ended: true, committedCalls: 5, cancelledCalls: 0, forks: 0, joinsFired: 1, joinsDeclared: 1 }],
          ['search-1', { ended: true, committedCalls: 5, cancelledCalls: 3, forks: 6, joinsFired: 2, joinsDeclared: 2 }],
        ])
      }
      assert.deepEqual(parsed.texts, { chains: 2, chainsSame: 2, calls: 10, callsSame: 10, callsCancelled: 3, callsAskedOtherwise: 0 })
    })
  }

  test('says which programs with joins ended, and which of their calls it does not compare', async () => {
    const { out } = await demo('mlfq', false)
    assert.match(out, /program with joins +run +calls +cancelled +forks +joins fired\n +reader-1 +engines today +ended +5 +0 +0 +1 of 1\n +Entracte +ended/)
    assert.match(out, /search-1 +engines today +ended +5 +3 +6 +2 of 2\n/)
    assert.match(out, /for 2 of 2 programs that are chains of calls, and for 10 of 10 calls of programs with joins that can be compared\.\nNot compared: 3 calls that a join cancelled/)
  })
})
