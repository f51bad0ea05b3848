import assert from 'node:assert/strict'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { hostEngine } from '../../src/engines/engine-host.ts'
import { Lines } from '../../src/engines/lines.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { pause } from './listener.ts'
import { SECRET } from './remote-engine.ts'

test('a line is said whole and once, in however many pieces it comes, and one without an end at the end', () => {
  const text = 'the first\n\nthe second, and more of it\nthe last'
  for (let size = 1; size <= text.length; size += 1) {
    const said: string[] = []
    const lines = new Lines((line) => said.push(line))
    for (let at = 0; at < text.length; at += size) lines.push(text.slice(at, at + size))
    lines.end()
    assert.deepEqual(said, ['the first', 'the second, and more of it', 'the last'])
  }
})

test('who closes does not wait for the pause before a restart', async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'engine-host-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const [modelPath, secretFile] = [join(dir, 'tiny.gguf'), join(dir, 'secret')]
  writeTinyGguf(modelPath)
  writeFileSync(secretFile, SECRET)
  // Where it would listen somebody else does.
  const taken = createServer().listen(0, '127.0.0.1')
  t.after(() => taken.close())
  await once(taken, 'listening')
  const address = taken.address()
  const said: string[] = []
  const host = hostEngine({
    modelPath, lanes: 1, laneTokens: 256, threads: 1, chunkTokens: 64, flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: join(dir, 'probes.json'),
    listen: { host: '127.0.0.1', port: typeof address === 'object' ? address?.port ?? 0 : 0 }, secretFile, tls: null,
  }, (line) => said.push(line))
  for (let tries = 0; tries < 1_500 && !said.includes('the engine is started again in 1 s'); tries++) await pause(10)
  assert.ok(said.includes('the engine is started again in 1 s'), said.join('\n'))
  const beganMs = performance.now()
  host.close()
  await host.ended
  assert.ok(performance.now() - beganMs < 500)
})
