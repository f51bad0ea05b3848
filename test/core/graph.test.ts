import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tenantId } from '../../src/core/ids.ts'
import type { ReportGraph } from '../../src/core/input.ts'
import { latestFinishUs } from '../../src/core/graph/graph-read.ts'
import { ALL, ANY, atLeast, GraphWorld, join, kinds, node, only, T, tool } from './graph-world.ts'
import { stateText } from './state-text.ts'
import { CLAIMS } from './world.ts'

const begun = (seed = 1, config = {}): GraphWorld => new GraphWorld(seed, { config }).begin()

// ---------------------------------------------------------------- READY

test('a call runs once every parent of its node has committed, and not before', () => {
  const at = begun()
  at.nodes(node('a'), tool('t', ['a']), node('b', ['a', 't']))
  const b = at.call('b')
  at.measure(b)
  assert.equal(at.callStage(b), 'measured')
  at.done('a')
  assert.equal(at.callStage(b), 'measured', 'its tool has not ended')
  assert.ok(kinds(at.outcome('t')).includes('call.scheduled'))
  at.end(b)
  assert.deepEqual([at.stage('a'), at.stage('t'), at.stage('b')], ['committed', 'committed', 'committed'])
})

test('a node may be brought along by its call, with parents that are nodes or calls by their id', () => {
  const at = begun()
  const first = at.submit({ claims: { ...CLAIMS, program: 'p', thread: 'x' } })
  const b = at.call('b', [first])
  at.measure(b)
  assert.equal(at.callStage(b), 'measured')
  at.measure(first)
  at.end(first)
  assert.equal(at.callStage(b), 'running')
  assert.equal(at.stage(first), 'committed', 'a call that is named becomes a node')
})

test('a declared node says in which thread its call is', () => {
  const at = begun()
  at.nodes(node('a', [], { thread: 'branch' }))
  const a = at.call('a', [], null)
  assert.equal(at.core.calls.get(a)?.thread, 't/p/branch')
  assert.equal(at.refusal(at.feedOf(() => at.call('b', [], 'branch'))), null)
})

test('a call whose client hung up frees its node, and another call may be it; nothing that waits for it is lost', () => {
  const at = begun()
  at.nodes(node('a'), node('b', ['a']))
  const a = at.call('a')
  at.measure(a)
  at.feed({ kind: 'hangUp', call: a })
  assert.deepEqual([at.stage('a'), at.stage('b')], ['open', 'open'])
  at.run(at.nowUs + 1_000_000)
  at.done('a')
  assert.equal(at.stage('a'), 'committed')
})

test('a node that can no longer run is cancelled with its call, and so is what needs it', () => {
  const at = begun()
  at.nodes(node('a'), node('b', ['a']), node('c', ['b']), node('d'))
  const [a, b] = [at.call('a'), at.call('b')]
  at.measure(b)
  at.measure(a)
  at.fail(a)
  assert.deepEqual([at.stage('a'), at.stage('b'), at.stage('c'), at.stage('d')], ['failed', 'failed', 'cancelled', 'open'])
  assert.equal(at.callStage(b), 'failed')
})

test('a call does not wait for ever for parents that never commit', () => {
  const at = begun(1, { interruptMaxUs: 60_000_000 })
  at.nodes(tool('t'), node('a', ['t']))
  const a = at.call('a')
  at.measure(a)
  at.run(at.nowUs + 61_000_000)
  assert.deepEqual([at.callStage(a), at.stage('a')], ['failed', 'failed'])
})

test('KV of a call that waits for its parents gives way to one that is ready, though its program is older', () => {
  const at = begun()
  for (const name of ['a', 'b', 'c', 'd']) at.done(name)
  at.nodes(tool('t'), ...['a', 'b', 'c', 'd'].map((name) => node(`${name}2`, ['t'])))
  for (const name of ['a', 'b', 'c', 'd']) at.measure(at.call(`${name}2`, [], name))
  const late = at.submit({ claims: { ...CLAIMS, program: 'late' } })
  assert.ok(kinds(at.measure(late)).includes('kv.offload.begun'))
})

// ---------------------------------------------------------------- joins

test('a join fires once, whichever parent commits last', () => {
  for (const order of [['a', 'b', 'c'], ['c', 'b', 'a'], ['b', 'a', 'c']]) {
    const at = begun()
    at.nodes(tool('a'), tool('b'), tool('c'), join('j', ALL, ['a', 'b', 'c']), node('after', ['j']))
    const after = at.call('after')
    at.measure(after)
    for (const name of order) at.outcome(name)
    assert.deepEqual(only(at.log, 'thread.joined').map(({ committed }) => committed), [['a', 'b', 'c']])
    assert.equal(at.callStage(after), 'running')
  }
})

test('a join of `any` fires with the first branch and cancels the others, with their calls and their KV', () => {
  const at = begun()
  at.done('root', [], 'main')
  at.report({ forks: [{ thread: 'b1', from: 'main' }, { thread: 'b2', from: 'main' }, { thread: 'b3', from: 'main' }] })
  at.nodes(node('x1', ['root']), node('x2', ['root']), node('x3a', ['root']), node('x3', ['x3a']), join('j', ANY, ['x1', 'x2', 'x3']))
  const [x1, x2, x3a] = [at.call('x1', [], 'b1'), at.call('x2', [], 'b2'), at.call('x3a', [], 'b3')]
  for (const call of [x1, x2, x3a]) at.measure(call)
  const facts = at.end(x1)
  assert.equal(only(facts, 'thread.joined').length, 1)
  assert.deepEqual([at.stage('x2'), at.stage('x3'), at.stage('x3a')], ['cancelled', 'cancelled', 'cancelled'])
  assert.deepEqual([at.callStage(x2), at.callStage(x3a)], ['cancelled', 'cancelled'], 'also what runs only for a branch that lost')
  assert.deepEqual([at.thread('b1').cancelled, at.thread('b2').cancelled, at.thread('b3').cancelled], [false, true, true])
  assert.deepEqual([at.stateOf('b2'), at.stateOf('b3')], [null, null])
  assert.equal(at.refusal(at.feedOf(() => at.call('late', [], 'b2'))), 'thread_cancelled')
  assert.equal(only(at.end(x2), 'result.ignored').length, 1, 'a late result of a loser changes nothing')
})

test('a join that lets its siblings go on cancels none', () => {
  const at = begun()
  at.nodes(node('a'), node('b'), join('j', { ...ANY, siblings: 'continue' }, ['a', 'b']))
  const b = at.call('b')
  at.measure(b)
  at.done('a')
  assert.deepEqual([at.stage('j'), at.stage('b'), at.callStage(b)], ['committed', 'open', 'running'])
  at.end(b)
  assert.equal(only(at.log, 'thread.joined').length, 1)
})

test('a join of `partial(k)` fires with k branches, and fails as soon as k can no longer be', () => {
  const at = begun()
  at.nodes(tool('a'), tool('b'), tool('c'), join('j', atLeast(2), ['a', 'b', 'c']))
  at.outcome('a', 'failed')
  assert.equal(at.stage('j'), 'open')
  at.outcome('c')
  assert.equal(at.stage('j'), 'open')
  at.outcome('b')
  assert.equal(at.stage('j'), 'committed')
  const other = begun()
  other.nodes(tool('a'), tool('b'), tool('c'), join('j', atLeast(2), ['a', 'b', 'c']), node('after', ['j']))
  other.outcome('a', 'failed')
  other.outcome('b', 'failed')
  assert.deepEqual([other.stage('j'), other.stage('c'), other.stage('after')], ['failed', 'cancelled', 'cancelled'])
})

test('a branch that fails fails a join of `all`: its siblings are cancelled, or go on, as the join says', () => {
  for (const [siblings, left] of [['cancel', 'cancelled'], ['continue', 'open']] as const) {
    const at = begun()
    at.nodes(tool('a'), tool('b'), join('j', { ...ALL, siblings }, ['a', 'b']))
    at.outcome('a', 'failed')
    assert.deepEqual([at.stage('j'), at.stage('b')], ['failed', left])
  }
})

test('a branch that another open node needs is not cancelled with a join that needs it no more', () => {
  const at = begun()
  at.nodes(tool('shared'), tool('a'), join('j', ANY, ['shared', 'a']), node('other', ['shared']))
  at.outcome('a')
  assert.deepEqual([at.stage('j'), at.stage('shared'), at.stage('other')], ['committed', 'open', 'open'])
})

test('a node ends once: what its call comes to afterwards changes nothing of it', () => {
  const at = begun()
  at.nodes(tool('t'), node('a'), node('b'), join('j', ANY, ['t', 'a', 'b']))
  const [a, b] = [at.call('a', [], 'x'), at.call('b', [], 'x')]
  at.measure(a)
  at.outcome('t')
  assert.deepEqual([at.callStage(a), at.callStage(b)], ['cancelled', 'failed'], 'b stood behind a')
  assert.deepEqual([at.stage('a'), at.stage('b')], ['cancelled', 'cancelled'])
})

test('an open join may get more branches; a join that has fired may not', () => {
  const at = begun()
  at.nodes(tool('a'), join('j', ALL, ['a']))
  at.nodes(tool('b'), join('j', ALL, ['b']))
  at.outcome('a')
  assert.equal(at.stage('j'), 'open')
  at.outcome('b')
  assert.equal(at.stage('j'), 'committed')
  assert.equal(at.refusal(at.nodes(tool('c'), join('j', ALL, ['c']))), 'node_closed')
})

test('a thread of a branch that lost keeps neither wait nor KV, and may go on where it was not forked for it', () => {
  const at = begun()
  const b1 = at.call('b1')
  at.measure(b1)
  at.end(b1, { finish: 'tool_calls', toolCalls: [{ id: 'look', name: 'search' }] })
  at.nodes(node('b2', ['b1'], { thread: 'b1' }), tool('a'), join('j', ANY, ['a', 'b2']))
  assert.ok(at.stateOf('b1'))
  const facts = at.outcome('a')
  assert.deepEqual([only(facts, 'interrupt.cancelled').length, at.stateOf('b1'), at.thread('b1').interrupt], [1, null, null])
  assert.equal(at.thread('b1').cancelled, false)
})

// ---------------------------------------------------------------- what contradicts

test('a report that contradicts what is known is refused by name and changes nothing', () => {
  const cases: readonly [string, Partial<ReportGraph>][] = [
    ['graph_cycle', { nodes: [node('x', ['y']), node('y', ['x'])] }],
    ['graph_cycle', { nodes: [node('x', ['x'])] }],
    ['graph_cycle', { nodes: [node('x', ['j']), join('j', ALL, ['x'])] }],
    ['unknown_parent', { nodes: [node('x', ['nobody'])] }],
    ['foreign_parent', { nodes: [node('x', ['c2'])] }],
    ['node_conflict', { nodes: [node('done', ['open'])] }],
    ['node_conflict', { nodes: [node('open', [], { kind: 'CODE' })] }],
    ['node_conflict', { nodes: [node('x', [], { join: ALL })] }],
    ['node_conflict', { nodes: [node('x', [], { kind: 'JOIN' })] }],
    ['invalid_request', { nodes: [node('x', [], { serviceUs: -1 })] }],
    ['invalid_request', { nodes: [node('x', [], { serviceUs: 0.5 })] }],
    ['node_conflict', { nodes: [join('j', ANY, ['open'])] }],
    ['join_unmeetable', { nodes: [join('x', ALL, [])] }],
    ['join_unmeetable', { nodes: [join('x', atLeast(3), ['open', 'call'])] }],
    ['join_unmeetable', { nodes: [join('x', atLeast(0), ['open', 'call'])] }],
    ['join_unmeetable', { nodes: [join('x', ALL, ['open', 'bad'])] }],
    ['parent_failed', { nodes: [node('x', ['bad'])] }],
    ['unknown_node', { outcomes: [{ node: 'nobody', outcome: 'completed', why: '' }] }],
    ['node_closed', { outcomes: [{ node: 'bad', outcome: 'completed', why: '' }] }],
    ['node_closed', { outcomes: [{ node: 'done', outcome: 'failed', why: '' }] }],
    ['node_conflict', { outcomes: [{ node: 'call', outcome: 'completed', why: '' }] }],
    ['node_conflict', { outcomes: [{ node: 'j', outcome: 'completed', why: '' }] }],
    ['parents_open', { outcomes: [{ node: 'late', outcome: 'completed', why: '' }] }],
    ['unknown_thread', { forks: [{ thread: 'x', from: 'nobody' }] }],
    ['thread_exists', { forks: [{ thread: 'done', from: 'call' }] }],
    ['stale_epoch', { epoch: 7 }],
    ['unknown_program', { parent: 'nobody' }],
    ['parent_conflict', { parent: 'p' }],
    ['unknown_program', { program: 'nobody' }],
    ['unknown_program', { tenant: tenantId('another') }],
  ]
  const at = begun()
  at.done('done')
  at.submit({ call: 'c2' as never, claims: { ...CLAIMS, program: 'q' } })
  at.nodes(tool('open'), node('call'), tool('bad'), tool('late', ['open']), join('j', ALL, ['open']))
  at.call('call')
  at.outcome('bad', 'failed')
  for (const [code, report] of cases) {
    const before = stateText({ ...at.core, seq: 0 })
    const facts = at.report({ nodes: [...report.nodes ?? [], tool('good')], ...report })
    assert.equal(at.refusal(facts), code, JSON.stringify(report))
    assert.deepEqual(kinds(facts), ['program.refused'])
    assert.equal(stateText({ ...at.core, seq: 0 }), before, code)
  }
})

test('the same report again says nothing new and is no contradiction', () => {
  const at = begun()
  at.done('root', [], 'main')
  const report: Partial<ReportGraph> = {
    forks: [{ thread: 'b', from: 'main' }], nodes: [tool('t', ['root']), join('j', ALL, ['t'])], outcomes: [{ node: 't', outcome: 'completed', why: '' }],
  }
  at.report(report)
  const before = stateText({ ...at.core, seq: 0 })
  const [only1, ...others] = at.report(report)
  assert.deepEqual(only1?.fact, { kind: 'graph.reported', program: 't/p', by: null, nodes: [], grown: [] })
  assert.deepEqual(kinds(others), ['timer.set'])
  assert.equal(stateText({ ...at.core, seq: 0 }), before)
})

test('outcomes of one report are taken one after another, with the joins between them', () => {
  const at = begun()
  at.nodes(tool('a'), tool('b'), join('j', ALL, ['a', 'b']), tool('c', ['j']))
  at.report({ outcomes: ['a', 'b', 'c'].map((name) => ({ node: name, outcome: 'completed', why: '' })) })
  assert.deepEqual(['a', 'b', 'j', 'c'].map((name) => at.stage(name)), ['committed', 'committed', 'committed', 'committed'])
})

test('a call is refused whose claim contradicts the graph: a node that has ended, is claimed, is no call, or would wait for itself', () => {
  const at = begun()
  at.nodes(tool('t'), node('a', [], { thread: 'x' }), node('ahead', ['behind']), node('behind'))
  at.done('done')
  const refusal = (...call: Parameters<GraphWorld['call']>): string | null => at.refusal(at.feedOf(() => at.call(...call)))
  assert.equal(refusal('done'), 'node_closed')
  assert.equal(refusal('t'), 'node_conflict')
  assert.equal(refusal('a', [], 'y'), 'node_conflict')
  assert.equal(refusal('a', ['t'], 'x'), 'node_conflict')
  assert.equal(refusal('new', ['nobody']), 'unknown_parent')
  assert.equal(refusal('a', [], 'x'), null)
  assert.equal(refusal('a', [], 'x'), 'node_closed')
  assert.equal(refusal('ahead', [], 'z'), null)
  assert.equal(refusal('behind', [], 'z'), 'graph_cycle', 'it would stand behind a call that waits for it')
})

test('a graph and the threads of a program have a limit, and a report beyond it is refused', () => {
  const at = begun(1, { nodesPerProgramMax: 3, edgesPerProgramMax: 2, threadsPerProgramMax: 2 })
  at.done('root', [], 'main')
  assert.equal(at.refusal(at.nodes(tool('a'), tool('b'), tool('c'))), 'graph_full')
  assert.equal(at.refusal(at.nodes(tool('a', ['root']), tool('b', ['a', 'root']))), 'graph_full')
  assert.equal(at.refusal(at.nodes(tool('a', ['root']), tool('b', ['a']))), null)
  assert.equal(at.refusal(at.report({ forks: [{ thread: 'f1', from: 'main' }] })), null)
  assert.equal(at.refusal(at.report({ forks: [{ thread: 'f2', from: 'main' }] })), 'graph_full')
})

// ---------------------------------------------------------------- forks

test('a fork shares what its parent has committed: one more reference to each Segment, no bytes, and a tail of its own', () => {
  const at = begun()
  const root = at.done('root', [], 'main')
  const held = at.core.engines.get('e0' as never)?.ownedGranules
  at.report({ forks: [{ thread: 'b', from: 'main' }] })
  assert.deepEqual(at.stateOf('b')?.spans, at.stateOf('main')?.spans)
  assert.deepEqual([at.stateOf('b')?.residence.kind, at.stateOf('b')?.record], ['gone', root])
  assert.deepEqual([...at.core.segments.values()].map(({ refs }) => refs), [2, 2])
  assert.equal(at.core.engines.get('e0' as never)?.ownedGranules, held)
})

test('a forked thread continues from the committed tokens: its first call feeds them again by origin, and they stay its parent\'s too', () => {
  const at = begun()
  const root = at.done('root', [], 'main')
  at.report({ forks: [{ thread: 'b', from: 'main' }] })
  const b = at.call('b1', [], 'b')
  const [scheduled] = only(at.measure(b, root, 69), 'call.scheduled')
  assert.deepEqual([scheduled?.baseTokens, scheduled?.keepTokens, scheduled?.recomputeTokens, scheduled?.replay], [69, 0, 69, 'exact'])
  const main = at.call('m2', [], 'main')
  const [other] = only(at.measure(main, root, 69), 'call.scheduled')
  assert.deepEqual([other?.baseTokens, other?.keepTokens], [69, 69], 'its parent still has them on device')
})

test('a token record is kept while a fork continues it, and goes with the last that does', () => {
  const at = begun()
  const root = at.done('root', [], 'main')
  at.report({ forks: [{ thread: 'b', from: 'main' }] })
  const [main, b] = [at.call('m2', [], 'main'), at.call('b1', [], 'b')]
  at.measure(main, root, 69)
  assert.equal(only(at.end(main), 'call.completed')[0]?.supersedes, null)
  at.measure(b, root, 69)
  assert.equal(only(at.end(b), 'call.completed')[0]?.supersedes, root)
})

test('the end of either thread leaves the other what it refers to', () => {
  for (const first of ['main', 'b']) {
    const at = begun()
    at.done('root', [], 'main')
    at.report({ forks: [{ thread: 'b', from: 'main' }] })
    at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: first })
    assert.deepEqual([...at.core.segments.values()].map(({ refs }) => refs), [1, 1], first)
    at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: first === 'main' ? 'b' : 'main' })
    assert.deepEqual([at.core.segments.size, at.core.sharedRecords.size, at.core.states.size], [0, 0, 0])
  }
})

// ---------------------------------------------------------------- cancel, end

test('cancelling a thread stops its calls, ends its wait, frees its KV and cancels what needs it; the program goes on', () => {
  const at = begun()
  const running = at.call('a', [], 'x')
  at.measure(running)
  const waiting = at.call('a2', [], 'x')
  at.nodes(node('b', ['a']), node('c'))
  const facts = at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: 'x' })
  assert.equal(kinds(facts)[0], 'thread.cancelled')
  assert.deepEqual([at.callStage(running), at.callStage(waiting), at.stateOf('x')], ['cancelled', 'cancelled', null])
  assert.deepEqual([at.stage('a'), at.stage('b'), at.stage('c')], ['cancelled', 'cancelled', 'open'])
  assert.equal(at.refusal(at.feedOf(() => at.call('again', [], 'x'))), 'thread_cancelled')
  assert.equal(at.refusal(at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: 'x' })), 'thread_cancelled')
  assert.equal(at.refusal(at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: 'nobody' })), 'unknown_thread')
})

test('cancelling a thread that waits for a tool tells which effects remain', () => {
  const at = begun()
  const call = at.call('a', [], 'x')
  at.measure(call)
  at.end(call, { finish: 'tool_calls', toolCalls: [{ id: 'pay', name: 'pay' }], toolEffect: 'irreversible' })
  const facts = at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: 'x' })
  assert.deepEqual(only(facts, 'thread.cancelled')[0]?.effectsRemaining.map(({ interrupt }) => interrupt), [`${call}.wait`])
  assert.equal(only(facts, 'interrupt.cancelled').length, 1)
})

test('cancelling a call, by its id or its node\'s name, whether it has come or not, cancels what can no longer run', () => {
  const cancel = (at: GraphWorld, call: string) => at.feed({ kind: 'cancelCall', tenant: T, program: 'p', call })
  for (const by of ['id', 'name', 'unclaimed']) {
    const at = begun()
    at.nodes(node('a'), node('b', ['a']))
    const a = by === 'unclaimed' ? null : at.call('a')
    if (a !== null) at.measure(a)
    cancel(at, by === 'id' && a !== null ? a : 'a')
    assert.deepEqual([at.stage('a'), at.stage('b')], ['cancelled', 'cancelled'], by)
    if (a !== null) assert.equal(at.callStage(a), 'cancelled')
    assert.equal(at.refusal(at.feedOf(() => at.call('a'))), 'node_closed')
    assert.equal(at.refusal(cancel(at, 'a')), 'node_closed')
    assert.equal(at.refusal(cancel(at, 'nobody')), 'unknown_call')
  }
})

test('a report that says more than may ever be known is refused before it is drawn', () => {
  const at = begun(1, { nodesPerProgramMax: 2, edgesPerProgramMax: 2 })
  assert.equal(at.refusal(at.nodes(node('a'), node('a'), node('a'))), 'graph_full')
  assert.equal(at.refusal(at.nodes(node('a'), node('b', ['a', 'a', 'a']))), 'graph_full')
  assert.equal(at.refusal(at.nodes(node('a'), node('b', ['a', 'a']))), null)
})

test('a program whose last wait ended with a branch that its join needs no more closes in time', () => {
  const at = begun()
  at.nodes(node('a'), node('b1', [], { thread: 'b' }), node('b2', ['b1'], { thread: 'b' }), join('j', ANY, ['a', 'b2']))
  const b1 = at.call('b1', [], 'b')
  at.measure(b1)
  at.end(b1, { finish: 'tool_calls', toolCalls: [{ id: 'x', name: 'x' }] })
  const facts = at.feedOf(() => at.done('a'))
  assert.equal(only(facts, 'interrupt.cancelled').length, 1)
  assert.ok(at.core.timers.has('close:t/p'))
})

test('a program that ends closes every node and takes no more reports', () => {
  for (const end of ['finishProgram', 'cancelProgram'] as const) {
    const at = begun()
    at.nodes(tool('a'), join('j', ALL, ['a']))
    at.feed({ kind: end, tenant: T, program: 'p' })
    assert.deepEqual([at.stage('a'), at.stage('j')], ['cancelled', 'cancelled'])
    assert.match(at.refusal(at.outcome('a')) ?? '', /^program_(ended|cancelled)$/)
  }
})

test('a program whose graph has a step under way elsewhere stays open as long as a tool may take', () => {
  const at = begun(1, { programIdleUs: 10_000_000, interruptMaxUs: 60_000_000 })
  at.nodes(tool('long'))
  at.run(at.nowUs + 30_000_000)
  assert.equal(at.refusal(at.outcome('long')), null)
  at.run(at.nowUs + 20_000_000)
  assert.equal(at.refusal(at.outcome('long')), 'program_ended')
})

// ---------------------------------------------------------------- deadlines

test('a deadline goes back along the graph: a call must end before the longest stated way that follows it', () => {
  const at = new GraphWorld(1).begin({ deadlineUs: 100_000_000 })
  at.nodes(
    node('a', [], { serviceUs: 1_000 }), node('b', ['a'], { serviceUs: 5_000 }), tool('c', ['a'], { serviceUs: 30_000 }),
    join('j', ALL, ['b', 'c']), node('d', ['j'], { serviceUs: 7_000 }), node('e', ['d']),
  )
  const latest = (name: string): number | null => {
    const call = at.call(name)
    return latestFinishUs(at.core, at.core.calls.get(call) as never)
  }
  assert.equal(latest('e'), 100_000_000)
  assert.equal(latest('d'), 100_000_000)
  assert.equal(latest('b'), 100_000_000 - 7_000)
  const a = at.call('a')
  const atA = (): number | null => latestFinishUs(at.core, at.core.calls.get(a) as never)
  assert.equal(atA(), 100_000_000 - 37_000)
  at.outcome('c', 'cancelled')
  assert.equal(atA(), 100_000_000, 'the join failed, and nothing needs it any more')
  const bare = at.submit({ claims: { ...CLAIMS, program: 'p', thread: 'bare' } })
  assert.equal(latestFinishUs(at.core, at.core.calls.get(bare) as never), 100_000_000)
})

test('without a deadline there is no latest finish', () => {
  const at = begun()
  at.nodes(node('a', [], { serviceUs: 1_000 }), node('b', ['a'], { serviceUs: 5_000 }))
  assert.equal(latestFinishUs(at.core, at.core.calls.get(at.call('a')) as never), null)
})

test('a sub-agent shares the deadlines of the programs above it: the soonest counts', () => {
  const at = new GraphWorld(1).begin({ deadlineUs: 50_000_000 })
  const sub = (program: string, parent: string, deadlineUs: number | null): number | null => {
    at.feed({ kind: 'declareProgram', tenant: T, program, session: null, agent: 'a', priorityClass: 'default', deadlineUs, parent, steps: null })
    return latestFinishUs(at.core, at.core.calls.get(at.submit({ claims: { ...CLAIMS, program } })) as never)
  }
  assert.deepEqual([sub('q', 'p', null), sub('r', 'q', 90_000_000), sub('s', 'r', 20_000_000)], [50_000_000, 50_000_000, 20_000_000])
})

test('a graph is rebuilt by its facts alone', () => {
  const at = begun()
  at.done('root', [], 'main')
  at.report({ forks: [{ thread: 'b', from: 'main' }], nodes: [tool('t', ['root'], { serviceUs: 9 }), tool('u', ['t'], { serviceUs: 4 }), join('j', ANY, ['t', 'u'])] })
  at.outcome('t')
  at.feed({ kind: 'cancelThread', tenant: T, program: 'p', thread: 'b' })
  assert.deepEqual(at.replay(), at.core)
})

test('a parent of a declared node is named by the call that is it, and not by a call of another program that is its namesake', () => {
  const at = begun()
  at.nodes(node('first'), node('second', ['first']))
  const own = at.call('first')
  const claims = { ...CLAIMS, program: 'q', node: 'first', identity: { source: 'explicit', confidence: 100 } } as const
  const other = at.submit({ claims })
  assert.equal(at.core.calls.get(other)?.node, 'first')
  assert.equal(at.refusal(at.feedOf(() => at.call('second', [other]))), 'node_conflict')
  assert.equal(at.refusal(at.feedOf(() => at.call('second', [own]))), null)
})
