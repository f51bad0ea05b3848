/** An engine on another machine: who is let in, what is lost when the connection is, and images on the wire. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { callId, moveId, stateId, tenantId } from '../../src/core/ids.ts'
import type { EmbeddedEngine } from '../../src/engines/embedded.ts'
import { Listener, pause } from './listener.ts'
import { freePort, hosted, remoteEngine, type Hosted } from './remote-engine.ts'
import { TINY_SEED, tinyLong } from './tiny-engine.ts'

const BODY = JSON.stringify(tinyLong)

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'remote-'))
  t.after(() => rmSync(dir, { recursive: true }))
  return dir
}

async function open(t: TestContext, engine: EmbeddedEngine, reign = 1): Promise<Listener> {
  t.after(() => engine.close())
  const listener = new Listener()
  engine.open(reign, listener)
  return listener
}

const joined = (listener: Listener, count = 1) => listener.until('engineJoined', () => listener.inputs('engineJoined')[count - 1])

async function host(t: TestContext, dir: string, more: Parameters<typeof hosted>[1] = {}): Promise<Hosted> {
  const made = await hosted(dir, more)
  t.after(async () => {
    made.close()
    await made.ended.catch(() => undefined)
  })
  return made
}

async function start(engine: EmbeddedEngine, attempt: number, forced: readonly number[] = []): Promise<void> {
  const call = callId('c')
  const measured = await engine.measure({ call, body: BODY, records: [] })
  assert.ok(measured.ok)
  engine.perform({
    kind: 'start', tenant: tenantId('t'), call, attempt, run: 0, epoch: 0, state: stateId(`s${attempt}`), body: BODY, prepared: measured.prepared, baseTokens: 0, keepTokens: 0,
    recomputeTokens: forced.length, replay: 'exact', forced, seed: TINY_SEED, maxTokens: 600, rank: 1, grantGranules: 1,
  })
}

/** A wire that can be cut, and one that carries nothing though it stands. */
async function wire(t: TestContext, port: number): Promise<{ port: number; cut(): void; hold(): void }> {
  const pairs = new Set<[Socket, Socket]>()
  const server = createServer((near) => {
    const far = connect(port, '127.0.0.1')
    pairs.add([near, far])
    near.pipe(far).pipe(near)
    for (const socket of [near, far]) socket.on('error', () => undefined).on('close', () => { near.destroy(); far.destroy() })
  })
  const at = await freePort()
  server.listen(at, '127.0.0.1')
  await once(server, 'listening')
  const cut = (): void => { for (const pair of pairs) for (const socket of pair) socket.destroy() }
  t.after(() => { cut(); server.close() })
  return {
    port: at, cut,
    hold: () => { for (const [near, far] of pairs) { near.unpipe(); far.unpipe(); near.pause(); far.pause() } },
  }
}

test('who does not know the secret is turned away on either side, again and again, and who does is served', async (t) => {
  const dir = folder(t)
  const at = await host(t, dir)
  const stranger = remoteEngine(at.port, { secret: 'not the one of this engine', leaseMs: 300 })
  const heard = await open(t, stranger)
  await heard.until('three tries', () => at.said.filter((said) => /turned away 127\.0\.0\.1: who called does not know the secret/.test(said))[2])
  assert.equal(stranger.condition.stage, 'lost')
  assert.match(stranger.condition.why ?? '', /is not let in, or does not let us in: .*hung up/)
  await heard.until('engineLost', () => heard.inputs('engineLost')[0])
  await pause(500)
  assert.equal(heard.inputs('engineLost').length, 1, 'it is said once')
  assert.deepEqual(heard.inputs('engineJoined'), [])
  await joined(await open(t, remoteEngine(at.port)))
})

test('a second control plane is turned away while the first is served, and finds an empty engine when that is gone', async (t) => {
  const at = await host(t, folder(t))
  const first = remoteEngine(at.port)
  await joined(await open(t, first))
  const second = remoteEngine(at.port)
  const heard = await open(t, second, 2)
  await heard.until('to be turned away', () => (second.condition.why?.includes('does not let us in') === true ? true : undefined))
  await first.close()
  await joined(heard)
})

test('a broken connection loses the engine at once; it ends, and its call goes on with the next life, token for token', async (t) => {
  const at = await host(t, folder(t))
  const line = await wire(t, at.port)
  const engine = remoteEngine(line.port)
  const listener = await open(t, engine)
  await joined(listener)
  await start(engine, 1)
  await listener.finished(callId('c'), 1)
  const whole = listener.tokens(callId('c'), 1)
  await start(engine, 2)
  await listener.until('some tokens', () => listener.tokens(callId('c'), 2).length >= 20)
  const joins = listener.inputs('engineJoined').length
  line.cut()
  await listener.until('engineLost', () => listener.inputs('engineLost')[0])
  const shown = listener.tokens(callId('c'), 2)
  assert.ok(shown.length < whole.length, 'it had ended before')
  await joined(listener, joins + 1)
  assert.match(at.said.join('\n'), /the engine ends: its (control plane is gone|socket failed)/)
  await start(engine, 3, shown)
  await listener.finished(callId('c'), 3)
  assert.deepEqual([...shown, ...listener.tokens(callId('c'), 3)], whole)
})

test('where the network carries nothing, both sides hold on for their lease: then we count it lost, and it stops its calls', async (t) => {
  const at = await host(t, folder(t))
  const line = await wire(t, at.port)
  const engine = remoteEngine(line.port, { leaseMs: 900 })
  const listener = await open(t, engine)
  await joined(listener)
  await start(engine, 1)
  await listener.until('some tokens', () => listener.tokens(callId('c'), 1).length >= 5)
  line.hold()
  const beganMs = performance.now()
  await listener.until('engineLost', () => listener.inputs('engineLost').find(({ why }) => why.includes('not answered for 900 ms')))
  assert.ok(performance.now() - beganMs >= 800, 'it held on for about its lease')
  await listener.until('the engine to end', () => (at.said.some((said) => said.includes('nobody spoke for 900 ms') || said.includes('its control plane is gone')) ? true : undefined))
  await joined(listener, 2)
})

test('an image goes over the wire in pieces, out and in, and one that was changed on our side is refused', async (t) => {
  const dir = folder(t)
  const at = await host(t, dir)
  const engine = remoteEngine(at.port)
  const listener = await open(t, engine)
  await joined(listener)
  await start(engine, 1)
  const { spans } = await listener.finished(callId('c'), 1)
  const identity = { tenant: tenantId('t'), state: stateId('s1'), owner: 's1', epoch: 0, reign: 1 }
  const path = join(dir, 'image.kv')
  engine.perform({ kind: 'offload', move: moveId('m1'), state: stateId('s1'), path, spans: spans.map((span, index) => ({ ...span, id: `g${index}` })), identity })
  const out = await listener.until('moveDone', () => listener.inputs('moveDone')[0])
  assert.equal(readFileSync(path).length, out.bytes)
  assert.ok(out.bytes > 256 * 1024, `${out.bytes} bytes`)
  assert.equal(existsSync(`${path}.partial`), false)
  engine.perform({ kind: 'discard', state: stateId('s1') })
  engine.perform({ kind: 'onboard', move: moveId('m2'), state: stateId('s1'), path, digest: out.digest, identity })
  const back = await listener.until('a second moveDone', () => listener.inputs('moveDone')[1])
  assert.equal(back.move, 'm2')
  engine.perform({ kind: 'discard', state: stateId('s1') })
  const bytes = readFileSync(path)
  bytes[bytes.length - 9] = (bytes[bytes.length - 9] ?? 0) ^ 1
  writeFileSync(path, bytes)
  engine.perform({ kind: 'onboard', move: moveId('m3'), state: stateId('s1'), path, digest: out.digest, identity })
  const failed = await listener.until('moveFailed', () => listener.inputs('moveFailed')[0])
  assert.equal(failed.sourceLost, true)
  engine.perform({ kind: 'onboard', move: moveId('m4'), state: stateId('s1'), path: join(dir, 'none.kv'), digest: out.digest, identity })
  assert.match((await listener.until('another moveFailed', () => listener.inputs('moveFailed')[1])).why, /its image cannot be read/)
  await pause(50)
  const left = readdirSync(tmpdir()).filter((name) => name.startsWith('entr-images-')).flatMap((name) => readdirSync(join(tmpdir(), name)))
  assert.deepEqual(left.filter((name) => /^m\d\.kv/.test(name)), [], 'nothing is left on its side')
})

const hasOpenssl = ((): boolean => {
  try {
    execFileSync('openssl', ['version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

test('over TLS it is served where its certificate is of the authority that is named, and not elsewhere', { skip: hasOpenssl ? false : 'there is no openssl' }, async (t) => {
  const dir = folder(t)
  const [certFile, keyFile] = [join(dir, 'cert.pem'), join(dir, 'key.pem')]
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=engine', '-addext', 'subjectAltName=IP:127.0.0.1',
  ], { stdio: 'ignore' })
  const at = await host(t, dir, { tls: { certFile, keyFile } })
  const ca = readFileSync(certFile, 'utf8')
  const listener = await open(t, remoteEngine(at.port, { ca }))
  await joined(listener)
  const other = execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', join(dir, 'k2'), '-days', '2', '-subj', '/CN=other'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })
  for (const [engine, words] of [[remoteEngine(at.port, { ca: other }), /certificate|self.signed/], [remoteEngine(at.port), /let us in/]] as const) {
    const heard = await open(t, engine)
    await heard.until('to be refused', () => (words.test(engine.condition.why ?? '') ? true : undefined))
    assert.deepEqual(heard.inputs('engineJoined'), [])
  }
})
