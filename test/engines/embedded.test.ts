/** The embedded adapter against a child process that misbehaves (`fake-worker.ts`). */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { callId, moveId, stateId, tenantId } from '../../src/core/ids.ts'
import { EmbeddedEngine, type EmbeddedOptions } from '../../src/engines/embedded.ts'
import { Listener, pause } from './listener.ts'
import { isAlive } from './processes.ts'

const WORKER = fileURLToPath(new URL('./fake-worker.js', import.meta.url))
const LEASE_MS = 300
const BATCH_MS_MAX = 200
const MEMORY_BYTES_MAX = 64 << 20

interface Stage { engine: EmbeddedEngine; listener: Listener; dir: string; notes: string }
const stages: Stage[] = []

function stage(modelPath: string, more: Partial<EmbeddedOptions> = {}): Stage {
  const dir = mkdtempSync(join(tmpdir(), 'fake-'))
  const notes = join(dir, 'notes')
  const engine = new EmbeddedEngine({
    id: 'e', models: ['m'], modelPath, lanes: 4, laneTokens: 1_024, threads: 1, chunkTokens: 64, flashAttention: false, extraBuffers: true,
    libraryDir: null, probeCachePath: notes, runtimeDir: join(dir, 'run'), workerPath: WORKER,
    limits: { leaseMs: LEASE_MS, batchMsMax: BATCH_MS_MAX, memoryBytesMax: MEMORY_BYTES_MAX, pauseMs: 20, pauseMsMax: 80, loopAfter: 3 }, ...more,
  })
  const made = { engine, listener: new Listener(), dir, notes }
  stages.push(made)
  return made
}

afterEach(async () => {
  for (const { engine, dir } of stages.splice(0)) {
    await engine.close()
    rmSync(dir, { recursive: true })
  }
})

async function opened(modelPath = 'fine', more: Partial<EmbeddedOptions> = {}): Promise<Stage> {
  const made = stage(modelPath, more)
  made.engine.open(1, made.listener)
  await made.listener.until('the engine to join', () => made.listener.inputs('engineJoined')[0])
  return made
}

function start({ engine }: Stage, call: string, body: string, attempt = 1): void {
  engine.perform({
    kind: 'start', call: callId(call), attempt, run: 0, epoch: 0, state: stateId(`of-${call}`), body, prepared: Buffer.from('p'),
    baseTokens: 0, keepTokens: 0, recomputeTokens: 0, replay: 'exact', forced: [], seed: 1, maxTokens: 9, rank: 1, tenant: tenantId('t'), grantGranules: 1,
  })
}

const pids = ({ notes }: Stage): number[] =>
  [...readFileSync(notes, 'utf8').matchAll(/^begins (\d+)$/gm)].map(([, pid]) => Number(pid))

const lost = ({ listener }: Stage, count = 1) => listener.until('engineLost', () => listener.inputs('engineLost')[count - 1])
const joined = ({ listener }: Stage, count: number) => listener.until('engineJoined', () => listener.inputs('engineJoined')[count - 1])

test('what the process says is translated: capabilities, chunks, tool call ids, record, effect', async () => {
  const it = await opened('fine', { toolEffect: (names) => (names.includes('add') ? 'idempotent' : 'read') })
  const { capabilities } = it.listener.inputs('engineJoined')[0] ?? assert.fail()
  assert.deepEqual(capabilities.memory, { cells: 4_096, granule: 1_024, sequences: 4 })
  assert.deepEqual([capabilities.runningMax, capabilities.imageKey, capabilities.exact.answer], [4, 'fake', 'unknown'])
  start(it, 'c1', 'fine')
  const finished = await it.listener.finished(callId('c1'), 1)
  assert.deepEqual(finished.toolCalls, [{ id: 'call_c1_0', name: 'search' }, { id: 'call_c1_1', name: 'add' }])
  assert.equal(finished.toolEffect, 'idempotent')
  assert.deepEqual(finished.report.service, {
    useful: { residentUs: 30, workUs: 30 }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 0 },
  })
  assert.equal(it.listener.text(callId('c1'), 1), '1 2 3 ')
  const outcome = it.listener.outcomes(callId('c1'), 1)[0]
  assert.equal(Buffer.from(outcome?.record ?? []).toString(), 'record')
})

test('an answer in pieces of a few bytes is the same answer', async () => {
  const it = await opened()
  start(it, 'c1', 'pieces')
  assert.equal((await it.listener.finished(callId('c1'), 1)).finish, 'tool_calls')
})

test('the engine joins again with what the probe found, in the same life', async () => {
  const it = await opened('probing')
  assert.equal((await joined(it, 2)).capabilities.exact.answer, 'yes')
  assert.deepEqual(it.listener.inputs('engineLost'), [])
})

test('measurements come back to who asked, with the record they matched', async () => {
  const { engine } = await opened()
  const records = [{ call: callId('before'), record: Buffer.from('ab') }]
  const [one, two, refused] = await Promise.all([
    engine.measure({ call: callId('c1'), body: 'one', records }), engine.measure({ call: callId('c1'), body: 'two', records: [] }),
    engine.measure({ call: callId('c2'), body: 'unmeasurable', records: [] }),
  ])
  assert.ok(one.ok && two.ok && !refused.ok)
  assert.deepEqual(one.matched, { record: 'before', tokens: 2 })
  assert.equal(Buffer.from(one.prepared).toString(), 'prepared one')
  assert.equal(Buffer.from(two.prepared).toString(), 'prepared two')
  assert.deepEqual([refused.code, refused.why], ['context_too_long', '9 tokens and 4'])
})

for (const [fault, why] of [
  ['die', /code 9.*out of everything/], ['kill', /SIGKILL/], ['half', /code 0/], ['garbage', /protocol: a frame says/],
  ['odd', /protocol.*failed with a wrong why/], ['gap', /protocol.*go on at 4, not at 3/], ['foreign', /protocol.*epoch 1, not 0/],
  ['stray', /protocol.*not asked to/], ['refuse', /refused start: reign 1 is over/],
] as const) {
  test(`a process that does "${fault}" is lost with the reason, its calls end with it, and another takes over`, async () => {
    const it = await opened()
    start(it, 'c1', fault)
    start(it, 'c2', 'slow')
    assert.match((await lost(it)).why, why)
    await joined(it, 2)
    assert.deepEqual(it.listener.ends(callId('c1'), 1), [])
    assert.deepEqual(it.listener.ends(callId('c2'), 1), [])
    start(it, 'c2', 'fine', 2)
    await it.listener.finished(callId('c2'), 2)
    assert.equal(it.listener.inputs('engineLost').length, 1)
    const [first, second, ...more] = pids(it)
    assert.ok(first !== undefined && second !== undefined && more.length === 0)
    assert.equal(isAlive(first), false)
  })
}

test('a process that hangs is lost within its lease and a third, and is killed', async () => {
  const it = await opened()
  start(it, 'c1', 'hang')
  await it.listener.until('three tokens', () => it.listener.tokens(callId('c1'), 1).length === 3)
  const beganMs = performance.now()
  assert.match((await lost(it)).why, new RegExp(`not answered for ${LEASE_MS} ms`))
  assert.ok(performance.now() - beganMs < LEASE_MS * 2.5, `${performance.now() - beganMs} ms`)
  await joined(it, 2)
  assert.equal(isAlive(pids(it)[0] ?? assert.fail()), false)
})

test('a measurement that is never answered is answered with engine_unavailable', async () => {
  const it = await opened()
  const measurement = await it.engine.measure({ call: callId('c1'), body: 'hang', records: [] })
  assert.ok(!measurement.ok && measurement.code === 'engine_unavailable', JSON.stringify(measurement))
  await lost(it)
})

test('an idle process that answers is not taken for a hanging one; one that was stopped is, though nobody waits for it', { skip: process.platform === 'win32' }, async () => {
  const it = await opened()
  await pause(LEASE_MS * 3)
  assert.deepEqual(it.listener.inputs('engineLost'), [])
  const pid = pids(it)[0] ?? assert.fail()
  process.kill(pid, 'SIGSTOP')
  assert.match((await lost(it)).why, new RegExp(`not answered for ${LEASE_MS} ms`))
  await joined(it, 2)
  assert.equal(isAlive(pid), false)
})

test('a batch that does not end is found while the process answers everything else, and its calls go on with another', async () => {
  const it = await opened()
  start(it, 'c1', 'endless')
  await it.listener.until('three tokens', () => it.listener.tokens(callId('c1'), 1).length === 3)
  const asking = setInterval(() => { void it.engine.measure({ call: callId('c2'), body: 'fine', records: [] }) }, 20)
  const { why } = await lost(it).finally(() => clearInterval(asking))
  assert.match(why, /one batch has taken \d+ s so far, and batchSecondsMax is 0\.2/)
  await joined(it, 2)
  assert.equal(isAlive(pids(it)[0] ?? assert.fail()), false)
  assert.deepEqual(it.listener.ends(callId('c1'), 1), [])
  start(it, 'c1', 'fine', 2)
  await it.listener.finished(callId('c1'), 2)
})

test('a process that takes more memory than it may is ended and started again, and the reason names the limit', async () => {
  const it = await opened()
  start(it, 'c1', 'grows')
  assert.match((await lost(it)).why, /it takes 1024 MiB of memory, and memoryMiBMax is 64; it is started again in 0\.02 s/)
  await joined(it, 2)
  assert.equal(isAlive(pids(it)[0] ?? assert.fail()), false)
})

test('a match with a record that was not given ends the life of the process', async () => {
  const it = await opened()
  assert.equal((await it.engine.measure({ call: callId('c1'), body: 'foreign record', records: [] })).ok, false)
  assert.match((await lost(it)).why, /nobody, which it was not given/)
})

for (const [model, why] of [
  ['another protocol', /^it speaks protocol 3, not 2: both sides/], ['later reign', /refused hello: reign 1 is over/],
  ['unloadable', /code 3.*the model cannot be read/], ['silent', /not answered/],
] as const) {
  test(`a process that begins with "${model}" is started again after longer and longer, and is in a crash loop`, async () => {
    const it = stage(model)
    it.engine.open(1, it.listener)
    const pauses = async (count: number): Promise<readonly string[]> => {
      await lost(it, count)
      return it.listener.inputs('engineLost').slice(0, count).map(({ why: said }) => /started again in (\S+) s$/.exec(said)?.[1] ?? said)
    }
    assert.deepEqual(await pauses(2), ['0.02', '0.04'])
    assert.equal(it.engine.condition.stage, 'lost')
    assert.deepEqual((await pauses(4)).slice(2), ['0.08', '0.08'], 'it goes on, and waits no longer than the longest')
    const { stage: named, why: said } = it.engine.condition
    assert.equal(named, 'crash-loop')
    assert.match(said ?? '', why)
    assert.match(said ?? '', /crash loop: 4 lives in a row ended early/)
    assert.deepEqual(it.listener.inputs('engineJoined'), [])
    // A newer reign is a new beginning.
    it.engine.open(2, it.listener)
    assert.equal(it.engine.condition.stage, 'starting')
  })
}

test('a process that says it cannot serve is not started again, and why is told', async () => {
  const it = stage('refused')
  it.engine.open(1, it.listener)
  const last = await it.listener.until('the last word', () => it.listener.inputs('engineLost').find(({ why }) => why.includes('stays lost')))
  assert.match(last.why, /last words: engine: the model is none; it stays lost: it would end the same/)
  await pause(150)
  assert.equal(pids(it).length, 1)
  assert.equal(it.engine.condition.stage, 'refused')
})

test('a process that clings to life after its loss is killed after its lease, and only then another starts', async () => {
  const it = await opened('clinging')
  start(it, 'c1', 'garbage')
  await lost(it)
  const first = pids(it)[0] ?? assert.fail()
  assert.equal(isAlive(first), true, 'it should still be there')
  assert.equal(pids(it).length, 1)
  await it.listener.until('another start', () => pids(it).length === 2)
  assert.equal(isAlive(first), false)
  await joined(it, 2)
})

test('closing ends a process that hangs, and one that is still loading', async () => {
  const hanging = await opened()
  start(hanging, 'c1', 'hang')
  await hanging.listener.until('three tokens', () => hanging.listener.tokens(callId('c1'), 1).length === 3)
  const loading = stage('mute')
  loading.engine.open(1, loading.listener)
  await loading.listener.until('a start', () => existsSync(loading.notes))
  await Promise.all([hanging.engine.close(), loading.engine.close()])
  assert.deepEqual([...pids(hanging), ...pids(loading)].map(isAlive), [false, false])
  assert.equal(existsSync(join(hanging.dir, 'run', 'e.pid')), false)
  assert.deepEqual(loading.listener.said, [])
})

test('a move is answered once', async () => {
  const it = await opened()
  const path = join(it.dir, 'image')
  const identity = { tenant: tenantId('t'), state: stateId('s'), owner: 'o', epoch: 0, reign: 1 }
  it.engine.perform({ kind: 'offload', move: moveId('m1'), state: stateId('s'), path, spans: [], identity })
  await it.listener.until('moveDone', () => it.listener.inputs('moveDone')[0])
  assert.equal(readFileSync(path, 'utf8'), 'image')
})

// ---------------------------------------------------------------- what an earlier control plane left

/** A worker that nobody talks to, marked as a control plane would have. */
async function orphan(it: Stage, model: string): Promise<number> {
  const socket = join(it.dir, 'socket-of-before')
  const child = spawn(process.execPath, [WORKER, '--socket', socket, '--model', model], { stdio: 'ignore' })
  await it.listener.until('the orphan to listen', () => existsSync(socket))
  mkdirSync(join(it.dir, 'run'))
  writeFileSync(join(it.dir, 'run', 'e.pid'), JSON.stringify({ pid: child.pid, socket }))
  return child.pid ?? assert.fail()
}

test('an orphan that does not end within its lease is killed before another starts', { skip: process.platform === 'win32' }, async () => {
  const it = stage('fine')
  const pid = await orphan(it, 'clinging')
  const beganMs = performance.now()
  it.engine.open(1, it.listener)
  await joined(it, 1)
  assert.ok(performance.now() - beganMs >= LEASE_MS)
  assert.equal(isAlive(pid), false)
})

test('a pid file that names somebody else, or nothing, harms nobody', async () => {
  const us = JSON.stringify({ pid: process.pid, socket: '/no/such/socket' })
  for (const text of [us, '{"pid":4000000,"socket":"x"}', '{"pid": 1', '{"pid":-1,"socket":"x"}']) {
    const it = stage('fine')
    mkdirSync(join(it.dir, 'run'))
    writeFileSync(join(it.dir, 'run', 'e.pid'), text)
    it.engine.open(1, it.listener)
    await joined(it, 1)
  }
})
