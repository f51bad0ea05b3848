/** Deaths around the real engine process. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { fileURLToPath } from 'node:url'
import { callId, stateId, tenantId } from '../../src/core/ids.ts'
import type { EmbeddedEngine } from '../../src/engines/embedded.ts'
import { Listener } from './listener.ts'
import { isAlive } from './processes.ts'
import { TINY_SEED, tinyEngine, tinyLong } from './tiny-engine.ts'

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'life-'))
  t.after(() => rmSync(dir, { recursive: true }))
  return dir
}

const pidIn = (dir: string): number => (JSON.parse(readFileSync(join(dir, 'run', 'embedded.pid'), 'utf8')) as { pid: number }).pid

const BODY = JSON.stringify(tinyLong)

async function start(engine: EmbeddedEngine, attempt: number, forced: readonly number[]): Promise<void> {
  const call = callId('c')
  const measured = await engine.measure({ call, body: BODY, records: [] })
  assert.ok(measured.ok)
  engine.perform({
    kind: 'start', call, attempt, run: 0, epoch: 0, state: stateId(`s${attempt}`), body: BODY, prepared: measured.prepared, baseTokens: 0, keepTokens: 0,
    recomputeTokens: forced.length, replay: 'exact', forced, seed: TINY_SEED, maxTokens: 1_100, rank: 1, tenant: tenantId('t'), grantGranules: 1,
  })
}

test('a stream goes on at the next token after the engine was killed, with the tokens it would have had', async (t) => {
  const dir = folder(t)
  const engine = tinyEngine(dir)
  t.after(() => engine.close())
  const listener = new Listener()
  engine.open(1, listener)
  await listener.until('the engine to join', () => listener.inputs('engineJoined')[0])
  await start(engine, 1, [])
  await listener.finished(callId('c'), 1)
  const whole = listener.tokens(callId('c'), 1)

  await start(engine, 2, [])
  await listener.until('some tokens', () => listener.tokens(callId('c'), 2).length >= 20)
  const joinedBefore = listener.inputs('engineJoined').length
  process.kill(pidIn(dir), 'SIGKILL')
  const lost = await listener.until('engineLost', () => listener.inputs('engineLost')[0])
  assert.match(lost.why, /SIGKILL/)
  const shown = listener.tokens(callId('c'), 2)
  assert.ok(shown.length < whole.length, 'it had ended before it was killed')
  await listener.until('the engine to join again', () => listener.inputs('engineJoined').length > joinedBefore)
  await start(engine, 3, shown)
  await listener.finished(callId('c'), 3)
  assert.deepEqual([...shown, ...listener.tokens(callId('c'), 3)], whole)
})

test('a killed control plane leaves no engine behind, and the next one starts its own', async (t) => {
  const dir = folder(t)
  const parent = spawn(process.execPath, [fileURLToPath(new URL('./killed-parent.js', import.meta.url)), dir], { stdio: ['ignore', 'pipe', 'inherit'] })
  const [said] = await once(parent.stdout, 'data') as [Buffer]
  assert.equal(said.toString().trim(), 'engineJoined')
  const pid = pidIn(dir)
  assert.equal(isAlive(pid), true)
  parent.kill('SIGKILL')
  await once(parent, 'exit')

  const engine = tinyEngine(dir)
  t.after(() => engine.close())
  const listener = new Listener()
  engine.open(2, listener)
  await listener.until('the engine to join', () => listener.inputs('engineJoined')[0])
  assert.notEqual(pidIn(dir), pid)
  assert.equal(isAlive(pid), false)
})
