/** Which program a request says it belongs to. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { identify, type Identified } from '../../src/server/identity.ts'

const NOTHING = { tools: [], toolResults: [] }

const of = (...headers: readonly [string, string][]): Identified => identify(headers.flat(), NOTHING)

describe('identity', () => {
  test('is taken from the first tier that names a program or a session', () => {
    const cases: readonly [readonly [string, string][], string, number, string | null, string | null][] = [
      [[['X-Program-Id', 'p'], ['X-Claude-Code-Session-Id', 'c'], ['X-Session-Id', 's']], 'explicit', 100, 'p', 'c'],
      [[['X-Session-Id', 's'], ['X-Claude-Code-Session-Id', 'c']], 'native', 90, null, 'c'],
      [[['X-Session-Id', 's']], 'derived', 70, null, 's'],
      [[['X-Other', 's']], 'anonymous', 0, null, null],
    ]
    for (const [headers, source, confidence, program, session] of cases) {
      const { claims, ignored } = of(...headers)
      assert.deepEqual([claims.identity, claims.program, claims.session], [{ source, confidence }, program, session])
      assert.deepEqual(ignored, [])
    }
  })

  test('reads underscores as hyphens, and any case', () => {
    assert.equal(of(['x_PROGRAM_id', 'p']).claims.program, 'p')
  })

  test('reads thread, epoch, the last call and the agent', () => {
    const { claims } = of(['x-program-id', 'p'], ['x-program-thread-id', 't'], ['x-program-epoch', '3'], ['x-program-final', 'True'], ['x-program-agent', 'coder'])
    assert.deepEqual([claims.thread, claims.epoch, claims.final, claims.kind], ['t', 3, true, 'coder'])
  })

  test('reads the node that a call is, its parents and the parent of its program, beside an explicit program only', () => {
    const headers: [string, string][] = [['x-program-call-id', 'n'], ['x-program-parent-call-ids', 'a, chatcmpl-c7 ,b'], ['x-program-parent-id', 'root']]
    const { claims } = of(['x-program-id', 'p'], ...headers)
    assert.deepEqual([claims.node, claims.parents, claims.parent], ['n', ['a', 'c7', 'b'], 'root'])
    const bare = of(...headers).claims
    assert.deepEqual([bare.node, bare.parents, bare.parent], [null, [], null])
    for (const list of ['a,,b', 'a,caf\u00e9', `a,${'x'.repeat(257)}`]) {
      const { claims: none, ignored } = of(['x-program-id', 'p'], ['x-program-parent-call-ids', list])
      assert.deepEqual([none.parents, ignored.map(({ why }) => why)], [[], ['not-plain']])
    }
  })

  test('reads whose sub-agent a harness says it is: a conversation of its own below that of its parent', () => {
    const cases: readonly [readonly [string, string][], string | null, string | null][] = [
      [[['x-claude-code-session-id', 's'], ['x-claude-code-agent-id', 'a']], 'a', 's'],
      [[['x-claude-code-session-id', 's'], ['x-claude-code-agent-id', 'b'], ['x-claude-code-parent-agent-id', 'a']], 'b', 'a'],
      [[['x-claude-code-session-id', 's'], ['x-claude-code-parent-agent-id', 'a']], 's', null],
      [[['x-claude-code-agent-id', 'a']], null, null],
      [[['x-session-id', 'child'], ['x-session-affinity', 'child'], ['x-parent-session-id', 'root']], 'child', 'root'],
      [[['x-dynamo-session-id', 'child'], ['x-dynamo-parent-session-id', 'root']], 'child', 'root'],
      [[['x-parent-session-id', 'root']], null, null],
      [[['x-program-id', 'p'], ['x-session-id', 'child'], ['x-parent-session-id', 'root']], 'child', null],
    ]
    for (const [headers, session, parent] of cases) {
      const { claims } = of(...headers)
      assert.deepEqual([claims.session, claims.parent], [session, parent], JSON.stringify(headers))
    }
  })

  test('takes a bare x-thread-id only beside an explicit program, and after our own', () => {
    assert.equal(of(['x-thread-id', 't']).claims.thread, null)
    assert.equal(of(['x-thread-id', 't'], ['x-program-id', 'p']).claims.thread, 't')
    assert.equal(of(['x-thread-id', 't'], ['x-program-id', 'p'], ['x-program-thread-id', 'ours']).claims.thread, 'ours')
  })

  test('ignores and names a header that is repeated, not plain, too long or malformed', () => {
    const cases: readonly [readonly [string, string][], string][] = [
      [[['x-program-id', 'p'], ['X_Program_Id', 'p']], 'repeated'],
      [[['x-program-id', 'caf\u00e9']], 'not-plain'],
      [[['x-program-id', '  ']], 'not-plain'],
      [[['x-program-id', 'x'.repeat(257)]], 'not-plain'],
      [[['x-program-epoch', '-1']], 'malformed'],
      [[['x-program-epoch', '1.5']], 'malformed'],
      [[['x-program-final', 'yes']], 'malformed'],
    ]
    for (const [headers, why] of cases) {
      const { claims, ignored } = of(...headers)
      assert.deepEqual(ignored.map((one) => one.why), [why], JSON.stringify(headers).slice(0, 60))
      assert.deepEqual([claims.program, claims.epoch, claims.final], [null, null, false])
    }
    assert.equal(of(['x-program-id', 'x'.repeat(256)]).claims.program?.length, 256)
  })

  test('knows agents with the same tools as one kind, whatever their order, apart by harness', () => {
    const kind = (names: readonly string[], ...headers: readonly [string, string][]): string =>
      identify(headers.flat(), { ...NOTHING, tools: names.map((name) => ({ name })) }).claims.kind
    assert.equal(kind(['a', 'b']), kind(['b', 'a']))
    assert.notEqual(kind(['a', 'b']), kind(['a', 'c']))
    assert.match(kind(['a']), /^tools:[0-9a-f]{8}$/)
    assert.match(kind(['a'], ['x-claude-code-session-id', 's']), /^claude-code:[0-9a-f]{8}$/)
    assert.equal(kind([]), 'chat')
  })

  test('hands tool results on, for the core to link', () => {
    const { claims } = identify([], { tools: [], toolResults: ['a'] })
    assert.deepEqual(claims.toolResults, ['a'])
  })
})
