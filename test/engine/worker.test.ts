import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import type { ChildProcess } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { ENGINE_PROTOCOL, type EngineEvent } from '../../src/protocol/engine.ts'
import { FrameReader, encodeFrame } from '../../src/protocol/frame.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'

const WORKER = fileURLToPath(new URL('../../src/engine/worker.js', import.meta.url))
let directory = ''
let model = ''

before(() => {
  directory = mkdtempSync(join(tmpdir(), 'entracte-worker-'))
  model = join(directory, 'tiny.gguf')
  writeTinyGguf(model)
})
after(() => rmSync(directory, { recursive: true, force: true }))

interface Heard { readonly event: EngineEvent; readonly bin: readonly Uint8Array[] }

/** A process and its one control plane. */
class Client {
  readonly child: ChildProcess
  readonly socketPath: string
  readonly heard: Heard[] = []
  readonly exited: Promise<number | null>
  stderr = ''
  socket: Socket | null = null
  #wake: () => void = () => undefined

  constructor(name: string, extra: readonly string[] = [], probes = false) {
    this.socketPath = join(directory, `${name}.sock`)
    this.child = spawn(process.execPath, [
      WORKER, '--socket', this.socketPath, '--model', model, '--lanes', '3', '--lane-tokens', '4096', '--threads', '1',
      ...(probes ? [] : ['--no-probe']), ...extra,
    ], { stdio: ['ignore', 'ignore', 'pipe'] })
    this.child.stderr?.on('data', (chunk: Buffer) => { this.stderr += chunk.toString() })
    this.exited = new Promise((resolve) => this.child.once('exit', resolve))
  }

  async connect(): Promise<void> {
    this.socket = await connected(this.socketPath)
    const reader = new FrameReader()
    this.socket.on('data', (chunk: Buffer) => {
      for (const { message, bin } of reader.push(chunk)) this.heard.push({ event: message as EngineEvent, bin: bin.map((part) => Uint8Array.from(part)) })
      this.#wake()
    })
    this.socket.on('close', () => this.#wake())
    this.socket.on('error', () => this.#wake())
  }

  send(message: object, bin: readonly Uint8Array[] = []): void {
    this.socket?.write(encodeFrame(message, bin))
  }

  async next(kind: EngineEvent['kind']): Promise<Heard> {
    for (;;) {
      const at = this.heard.findIndex(({ event }) => event.kind === kind)
      if (at !== -1) return this.heard.splice(at, 1)[0] as Heard
      assert.notEqual(this.socket?.destroyed, true, `the engine went before ${kind}: ${this.stderr}`)
      await new Promise<void>((resolve) => { this.#wake = resolve })
    }
  }

  async hello(leaseMs = 10_000, reign = 5): Promise<void> {
    this.send({ kind: 'hello', protocol: ENGINE_PROTOCOL, reign, leaseMs })
    await this.next('welcome')
  }

  async end(): Promise<void> {
    this.socket?.destroy()
    await this.exited
  }
}

async function connected(path: string): Promise<Socket> {
  for (let tries = 0; tries < 400; tries++) {
    try {
      return await new Promise<Socket>((resolve, reject) => {
        const socket = connect(path)
        socket.once('connect', () => resolve(socket))
        socket.once('error', reject)
      })
    } catch {
      await sleep(25)
    }
  }
  throw new Error(`nobody listens on ${path}`)
}

async function startLong(client: Client): Promise<void> {
  const body = JSON.stringify({
    model: 'm', messages: [{ role: 'user', content: 'far away '.repeat(300), toolCalls: [], toolCallId: null }], tools: [],
    toolChoice: 'none', sampling: { temperature: 1, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: 1_000,
  })
  client.send({ kind: 'measure', reign: 5, call: 'c', body, records: [] })
  const { bin } = await client.next('measured')
  client.send({
    kind: 'start', reign: 5, call: 'c', attempt: 1, epoch: 0, state: 's', body, baseTokens: 0, keepTokens: 0, recomputeTokens: 0,
    replay: 'exact', forced: [], seed: 1, maxTokens: 1_000, rank: 0, tenant: 't', grantGranules: 1,
  }, bin)
}

async function endsWithin(client: Client, ms: number): Promise<void> {
  const begun = performance.now()
  await Promise.race([client.exited, sleep(ms + 5_000, undefined, { ref: false })])
  assert.ok(performance.now() - begun < ms, `it took ${Math.round(performance.now() - begun)} ms to end`)
}

test('it says what it is, and what it cannot read it refuses', async () => {
  const client = new Client('says')
  await client.connect()
  client.send({ kind: 'ping', reign: 5 })
  assert.match(JSON.stringify((await client.next('refused')).event), /hello/)
  client.send({ kind: 'hello', protocol: 99, reign: 5, leaseMs: 1_000 })
  assert.match(JSON.stringify((await client.next('refused')).event), /protocol 99/)
  client.send({ kind: 'hello', protocol: ENGINE_PROTOCOL, reign: 5, leaseMs: 10_000 })
  const { event } = await client.next('welcome')
  assert.ok(event.kind === 'welcome')
  assert.equal(event.engine.lanes, 3)
  assert.equal(event.engine.exact.answer, 'unknown')
  assert.ok(event.engine.speeds.prefillNsPerToken > 0 && event.engine.speeds.decodeRowNs > 0)
  assert.match(event.engine.modelDigest, /^[0-9a-f]{64}$/)
  for (const wrong of [{ kind: 'start', reign: 5 }, { kind: 'nothing' }, [], { kind: 'pause', reign: 5, call: 7, attempt: 1 }]) {
    client.send(wrong)
    await client.next('refused')
  }
  client.send({ kind: 'ping', reign: 4 })
  assert.match(JSON.stringify((await client.next('refused')).event), /reign 4 is over/)
  await client.end()
})

test('it serves one control plane and turns others away', async () => {
  const client = new Client('one')
  await client.connect()
  await client.hello()
  const other = await connected(client.socketPath)
  await new Promise((resolve) => other.once('close', resolve))
  client.send({ kind: 'order', reign: 5, orders: [] })
  client.send({ kind: 'ping', reign: 1 })
  await client.next('refused')
  await client.end()
})

test('it ends within a second when its socket closes, also in the middle of a prefill', async () => {
  const client = new Client('closes', ['--chunk-tokens', '2048'])
  await client.connect()
  await client.hello()
  await startLong(client)
  await sleep(20)
  client.socket?.destroy()
  await endsWithin(client, 1_000)
  assert.equal(existsSync(client.socketPath), false)
})

test('it ends when nobody spoke for its lease, and says so', async () => {
  const client = new Client('lease')
  await client.connect()
  await client.hello(400)
  for (let i = 0; i < 4; i++) {
    await sleep(200)
    client.send({ kind: 'ping', reign: 5 })
  }
  assert.equal(client.child.exitCode, null)
  await endsWithin(client, 1_500)
  assert.match(client.stderr, /nobody spoke for 400 ms/)
})

test('it ends when its parent is gone', { skip: process.platform === 'win32' }, async () => {
  const socketPath = join(directory, 'parent.sock')
  const code = `require('node:child_process').spawn(process.execPath, ${JSON.stringify([WORKER, '--socket', socketPath, '--model', model, '--lanes', '2', '--lane-tokens', '512', '--threads', '1', '--no-probe'])}, { stdio: 'ignore', detached: true }); setInterval(() => {}, 1000)`
  const parent = spawn(process.execPath, ['-e', code], { stdio: 'ignore' })
  const socket = await connected(socketPath)
  parent.kill('SIGKILL')
  const begun = performance.now()
  await new Promise((resolve) => { socket.once('close', resolve); socket.on('error', () => undefined); socket.resume() })
  assert.ok(performance.now() - begun < 2_000)
})

test('it ends when the framing is broken, because nothing after it can be trusted', async () => {
  const client = new Client('framing')
  await client.connect()
  await client.hello()
  client.socket?.write(Buffer.from('GET / HTTP/1.1\r\n\r\n'))
  await endsWithin(client, 1_000)
  assert.match(client.stderr, /framing/)
})

test('told to stop, it stops', async () => {
  const client = new Client('stop')
  await client.connect()
  await client.hello()
  await startLong(client)
  client.send({ kind: 'stop', reign: 5 })
  await endsWithin(client, 1_500)
  assert.equal(client.child.exitCode, 0)
})

test('a wrong command line and a wrong model are said in one line', async () => {
  for (const [extra, said] of [[['--lanes', '0'], /--lanes is 0/], [['--what'], /--what/], [['--load', 'hot'], /--load is hot; it must be one of auto, map, lock, read/], [['--model', '/nowhere.gguf'], /nowhere\.gguf/], [['--kv-type-v', 'q8_0'], /V as q8_0 needs flash attention/], [['--listen', '127.0.0.1:1'], /--secret-file is missing/], [['--build', 'npu'], /--build is npu; it must be one of auto, cpu/]] as const) {
    const client = new Client('wrong', extra)
    assert.equal(await client.exited, 78, 'another start would end the same')
    assert.match(client.stderr, said)
    assert.equal(client.stderr.trim().split('\n').length, 1, client.stderr)
  }
})

test('a build that is not here falls back to the CPU and says so, and KV of another type has another image key', async () => {
  const engines = []
  for (const [name, extra] of [['cpu', []], ['gpu', ['--build', 'metal']], ['eight', ['--kv-type-k', 'q8_0']]] as const) {
    const client = new Client(`build-${name}`, extra)
    await client.connect()
    client.send({ kind: 'hello', protocol: ENGINE_PROTOCOL, reign: 5, leaseMs: 10_000 })
    const { event } = await client.next('welcome')
    assert.ok(event.kind === 'welcome')
    engines.push(event.engine)
    await client.end()
  }
  const [cpu, gpu, eight] = engines
  assert.equal(cpu?.fallback, null)
  if (process.platform === 'linux') assert.match(gpu?.fallback ?? '', /no metal build of the llama library is here \(there is none for linux-.*\): the CPU computes/)
  assert.equal(gpu?.imageKey, cpu?.imageKey)
  assert.notEqual(eight?.imageKey, cpu?.imageKey)
})

test('an answer of the probe is kept for the next engine of its like', async () => {
  const cache = join(directory, 'probe.json')
  const first = new Client('probes', ['--probe-cache', cache], true)
  await first.connect()
  await first.hello()
  const { event } = await first.next('engine')
  assert.ok(event.kind === 'engine')
  assert.equal(event.engine.exact.answer, 'yes', event.engine.exact.because)
  await first.end()
  const second = new Client('knows', ['--probe-cache', cache])
  await second.connect()
  second.send({ kind: 'hello', protocol: ENGINE_PROTOCOL, reign: 5, leaseMs: 10_000 })
  const known = await second.next('welcome')
  assert.ok(known.event.kind === 'welcome')
  assert.deepEqual(known.event.engine.exact, event.engine.exact)
  await second.end()
  const other = new Client('differs', ['--probe-cache', cache, '--flash-attention'], true)
  await other.connect()
  await other.hello()
  const found = await other.next('engine')
  assert.ok(found.event.kind === 'engine')
  assert.equal(found.event.engine.exact.answer, 'no')
  await other.end()
})
