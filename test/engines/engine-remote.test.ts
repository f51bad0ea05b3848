/** One life of an engine on another machine, against a peer that is played. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { EngineRemote, type RemoteOptions } from '../../src/engines/engine-remote.ts'
import { FrameReader } from '../../src/protocol/frame.ts'
import { admitControl } from '../../src/protocol/handshake.ts'
import { pause } from './listener.ts'

const SECRET = 'known on both sides'
const TERMS = { reign: 1, leaseMs: 60_000, batchMsMax: 60_000, memoryBytesMax: null }
const MEBIBYTE = 1024 * 1024

function remote(t: TestContext, options: Omit<RemoteOptions, 'secret'>): { life: EngineRemote; lost: Promise<string> } {
  let lose: (why: string) => void = () => undefined
  const lost = new Promise<string>((resolve) => { lose = resolve })
  const life = new EngineRemote({ ...options, ...TERMS, secret: SECRET }, { event: () => undefined, lost: (why) => lose(why) })
  t.after(() => life.stop())
  return { life, lost }
}

function warnings(t: TestContext): string[] {
  const said: string[] = []
  const warn = ({ name, message }: Error): void => void said.push(`${name}: ${message}`)
  process.on('warning', warn)
  t.after(() => process.off('warning', warn))
  return said
}

test('a large image is sent as its reader takes it, and what waited for room leaves no listeners', async (t) => {
  const said = warnings(t)
  const dir = mkdtempSync(join(tmpdir(), 'engine-remote-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const path = join(dir, 'image.kv')
  writeFileSync(path, '')
  truncateSync(path, 48 * MEBIBYTE)
  const server = createServer().listen(0, '127.0.0.1')
  t.after(() => server.close())
  await once(server, 'listening')
  const address = server.address()
  const { life } = remote(t, { host: '127.0.0.1', port: typeof address === 'object' ? address?.port ?? 0 : 0, tls: null })
  const [peer] = await once(server, 'connection') as [Socket]
  t.after(() => peer.destroy())
  await admitControl(peer, SECRET)
  const reader = new FrameReader()
  let pieces = 0
  const whole = new Promise<void>((resolve) => {
    peer.on('data', (bytes: Buffer) => {
      // Slower than it is sent.
      peer.pause()
      setTimeout(() => peer.resume(), 1)
      for (const { message } of reader.push(bytes)) {
        const { kind } = message as { kind: string }
        if (kind === 'hello') life.send({ kind: 'onboard', reign: 1, move: 'm', state: 's', path, digest: '0', identity: { tenant: 't', state: 's', owner: 's', epoch: 0, reign: 1 } })
        if (kind === 'imagePiece') pieces += 1
        if (kind === 'onboard') resolve()
      }
    })
  })
  peer.resume()
  await whole
  assert.equal(pieces, 48)
  await pause(20)
  assert.deepEqual(said, [])
})

test('of an engine whose address is given no name is asked for, however the address is written', async (t) => {
  const said = warnings(t)
  for (const host of ['127.0.0.1', '::1', '::ffff:127.0.0.1', 'fe80::1']) {
    const { life } = remote(t, { host, port: 1, tls: { ca: null } })
    await life.stop()
  }
  await pause(20)
  assert.deepEqual(said, [])
})
