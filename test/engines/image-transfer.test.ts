/** Images between our files and an engine's folder, both sides in one process. */
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { open, type FileHandle } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { ImagePost } from '../../src/engine/image-post.ts'
import { ImageTransfer } from '../../src/engines/image-transfer.ts'
import type { EngineEvent } from '../../src/protocol/engine.ts'

test('of an image that cannot be read to its end nothing stays with the engine', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'image-transfer-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const [path, folder] = [join(dir, 'image.kv'), join(dir, 'theirs')]
  mkdirSync(folder)
  writeFileSync(path, Buffer.alloc(3 * 1024 * 1024))
  const probe = await open(path, 'r')
  const handles = Object.getPrototypeOf(probe) as FileHandle
  await probe.close()
  const post = new ImagePost(folder, { send: () => undefined, room: () => Promise.resolve() })
  let held: string[] = []
  const heard: unknown[] = []
  const failed = await new Promise<EngineEvent>((resolve) => {
    const transfer = new ImageTransfer({
      send: (message, bin) => heard.push(post.receive(message, bin ?? [])),
      async room() {
        held = readdirSync(folder)
        t.mock.method(handles, 'read', () => Promise.reject(new Error('the disk is broken')))
        return true
      },
      event: resolve,
    })
    transfer.send({ kind: 'onboard', reign: 1, move: 'm', state: 's', path, digest: '0', identity: { tenant: 't', state: 's', owner: 's', epoch: 0, reign: 1 } }, [])
  })
  assert.deepEqual(held, ['m.kv'])
  assert.deepEqual(readdirSync(folder), [])
  assert.match(failed.kind === 'moveFailed' ? failed.why : failed.kind, /cannot be read: .*the disk is broken/)
  assert.deepEqual(heard, [null, null], 'the loop hears of neither')
})
