import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { readFileSync, readdirSync } from 'node:fs'
import { test } from 'node:test'
import { apply, emptyCore } from '../../src/core/apply.ts'
import { CORE_DEFAULTS } from '../../src/core/config.ts'
import { FACT_VERSION, type Logged } from '../../src/core/fact.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { nothingSeen } from '../../src/core/invariants/law.ts'
import { upcast } from '../../src/core/upcast.ts'
import { packageRoot } from '../package-root.ts'
import { LIFTS, MADE_UP_VERSION } from './made-up-version.ts'
import { stateText } from './state-text.ts'

const golden = new URL('test/golden/', packageRoot())
const files = readdirSync(golden).filter((name) => /^log-v\d+\.jsonl$/.test(name))

test('every fact version has a golden log', () => {
  assert.deepEqual(files.sort(), Array.from({ length: FACT_VERSION }, (_, index) => `log-v${index + 1}.jsonl`))
})

/** The state that it was written with is the one it replays to. */
function replays(name: string, lift: (logged: Logged) => Logged): void {
  const [head, ...lines] = readFileSync(new URL(name, golden), 'utf8').trimEnd().split('\n').map((line) => JSON.parse(line) as unknown)
  const { facts, digest } = head as { facts: number; digest: string }
  assert.equal(lines.length, facts)
  const core = emptyCore({ ...CORE_DEFAULTS, hostBytesMax: 200_000, order: 'fcfs', residency: 'lru-host' })
  for (const line of lines) apply(core, lift(line as Logged))
  checkInvariants(core, nothingSeen())
  assert.equal(createHash('sha256').update(stateText(core)).digest('hex'), digest)
}

for (const name of files) {
  test(`${name} replays to the state it was written with, whatever today's policies are`, () => replays(name, (logged) => upcast(logged)))
}

test('a log of an older version is lifted fact by fact, and gives the state that the same facts of today give', () => {
  replays(`made-up-log-v${MADE_UP_VERSION}.jsonl`, (logged) => upcast(logged, LIFTS))
})

test('a fact of an older version that nothing lifts is refused, not guessed', () => {
  assert.throws(() => upcast({ seq: 1, atUs: 1, version: MADE_UP_VERSION, fact: { kind: 'timer.cleared', timer: 'x' } }), /nothing says/)
})

test('a fact of a version that a newer release wrote is refused, not guessed', () => {
  assert.throws(() => upcast({ seq: 1, atUs: 1, version: FACT_VERSION + 1, fact: { kind: 'timer.cleared', timer: 'x' } }), /version/)
})
