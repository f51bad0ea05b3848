import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { test, type TestContext } from 'node:test'
import { encodeFrame, FrameReader } from '../../src/protocol/frame.ts'
import { admitControl, admitEngine, HandshakeError } from '../../src/protocol/handshake.ts'

const SECRET = 'what both sides know'

/** Both ends of one connection: the engine's, the control plane's. */
async function ends(t: TestContext): Promise<[Socket, Socket]> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const control = connect(typeof address === 'object' ? address?.port ?? 0 : 0, '127.0.0.1')
  const [engine] = await once(server, 'connection') as [Socket]
  for (const socket of [engine, control]) socket.on('error', () => undefined)
  t.after(() => {
    engine.destroy()
    control.destroy()
    server.close()
  })
  return [engine, control]
}

const refused = (words: RegExp) => (error: unknown): boolean => {
  assert.ok(error instanceof HandshakeError, String(error))
  assert.match(error.message, words)
  return true
}

test('two that know the secret admit each other, the secret is not among what was sent, and what is said next is heard', async (t) => {
  const [engine, control] = await ends(t)
  const sent: string[] = []
  for (const socket of [engine, control]) socket.on('data', (bytes: Buffer) => sent.push(bytes.toString('latin1')))
  await Promise.all([admitControl(engine, SECRET), admitEngine(control, SECRET)])
  assert.doesNotMatch(sent.join(''), new RegExp(SECRET))
  control.write('hello')
  engine.resume()
  const [first] = await once(engine, 'data') as [Buffer]
  assert.equal(first.toString(), 'hello')
})

test('a control plane with another secret learns nothing but that it is turned away', async (t) => {
  const [engine, control] = await ends(t)
  const admitted = admitControl(engine, SECRET).catch((error: unknown) => {
    engine.destroy()
    throw error
  })
  const [engineSide, controlSide] = await Promise.allSettled([admitted, admitEngine(control, 'what one side thinks')])
  assert.ok(engineSide.status === 'rejected' && refused(/who called does not know the secret/)(engineSide.reason))
  assert.ok(controlSide.status === 'rejected' && refused(/hung up/)(controlSide.reason))
})

test('an engine that sends the control plane\'s own digest back is found out: roles differ', async (t) => {
  const [engine, control] = await ends(t)
  const reader = new FrameReader()
  engine.on('data', (bytes: Buffer) => {
    for (const { message } of reader.push(bytes)) engine.write(encodeFrame({ kind: 'proof', mac: (message as { mac: string }).mac }))
  })
  engine.write(encodeFrame({ kind: 'challenge', nonce: 'ab'.repeat(32) }))
  await assert.rejects(admitEngine(control, SECRET), refused(/who answers does not know the secret/))
})

test('one digest is good for one connection', async (t) => {
  const [engine, control] = await ends(t)
  let answer: unknown = null
  const reader = new FrameReader()
  engine.on('data', (bytes: Buffer) => { for (const { message } of reader.push(bytes)) answer ??= message })
  await Promise.all([admitControl(engine, SECRET), admitEngine(control, SECRET)])
  const [second, stranger] = await ends(t)
  stranger.write(encodeFrame(answer as object))
  await assert.rejects(admitControl(second, SECRET), refused(/does not know the secret/))
})

test('what is no message, or a huge one, is refused before it is kept', async (t) => {
  for (const bytes of [Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n\r\n'), Buffer.from([255, 255, 255, 0, 1, 0, 0, 0]), encodeFrame({ kind: 'answer' })]) {
    const [engine, control] = await ends(t)
    control.write(bytes)
    await assert.rejects(admitControl(engine, SECRET), refused(/a frame says|does not speak this protocol/))
  }
})

test('who says more than he was asked for before he is answered is refused', async (t) => {
  const [engine, control] = await ends(t)
  const message = encodeFrame({ kind: 'answer', nonce: 'ab', mac: 'cd' })
  control.write(Buffer.concat([message, message.subarray(0, 5)]))
  await assert.rejects(admitControl(engine, SECRET), refused(/said more than it was asked for/))
})
