import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { bodyId } from '../../src/core/ids.ts'
import { snapshotAfter } from './made-up-snapshot.ts'
import { openStore } from '../../src/store/store.ts'

const ROUNDS = 12
/** Facts in one append of the writer; see `killed-writer.ts`. */
const APPEND_FACTS = 3

/** The writer's life: it reports the last fact it was told is durable, until it is killed, so long after it began or had a snapshot. */
async function liveAndDie(data: string, lifeMs: number, until: 'said' | 'snapshot'): Promise<{ durable: number; refused: string }> {
  const script = fileURLToPath(new URL('./killed-writer.js', import.meta.url))
  const writer = spawn(process.execPath, [script, data], { stdio: ['ignore', 'pipe', 'pipe'] })
  let out = ''
  let refused = ''
  writer.stdout.on('data', (chunk: Buffer) => {
    const before = out
    out += chunk.toString()
    const begins = (text: string): boolean => (until === 'said' ? text !== '' : text.includes('s'))
    if (!begins(before) && begins(out)) setTimeout(() => writer.kill('SIGKILL'), lifeMs)
  })
  writer.stderr.on('data', (chunk: Buffer) => { refused += chunk.toString() })
  await new Promise((resolve) => writer.once('close', resolve))
  const told = out.split('\n').slice(0, -1).filter((line) => line !== 's').map(Number)
  return { durable: told.at(-1) ?? -1, refused }
}

test('kill -9 at any moment loses nothing that was durable, half no append, and leaves no lock', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'entracte-kill-'))
  const data = join(folder, 'data')
  let before = -1
  let seen = 0
  try {
    for (let round = 0; round < ROUNDS; round++) {
      const { durable, refused } = await liveAndDie(data, 5 + ((round * 37) % 90), round % 3 === 0 ? 'snapshot' : 'said')
      assert.equal(refused, '')
      assert.ok(durable > before, `round ${round} wrote something`)
      const store = openStore(data, {
        onFailure: (error) => { throw error }, onLoss: ({ id, why }) => assert.fail(`${id}: ${why}`),
        digestFile: async () => null, imagesDir: folder, imageBytesMax: 0, bodyBytesMax: 1_000_000, logRetentionUs: 0, makeSnapshot: null,
      })
      const seqs = [...store.log.read()].map(({ seq }) => seq)
      const last = seqs.at(-1) ?? -1
      assert.ok(last >= durable, `fact ${durable} was durable, and the log ends at ${last}`)
      const first = seqs[0] ?? 0
      assert.deepEqual(seqs, seqs.map((_, index) => first + index), 'no hole')
      assert.equal((last + 1) % APPEND_FACTS, 0, 'no half append')
      const snapshots = [...store.log.snapshots()]
      for (const snapshot of snapshots) assert.deepEqual([...snapshot.texts], snapshotAfter(snapshot.seq).texts, 'no half snapshot')
      assert.ok(snapshots.every(({ seq }) => seq <= last), 'no snapshot is ahead of the log')
      assert.ok(first === 0 || first - 1 <= (snapshots.at(-1)?.seq ?? -1), 'no fact is gone that a snapshot needs')
      seen += snapshots.length
      // The writer puts a body before the append that names it, so it is there whenever the append is.
      assert.equal(Buffer.from(store.bodies.get(bodyId('last')) ?? []).toString(), String(last))
      assert.equal(store.log.nextReign(), 2 * (round + 1), 'the writer took one reign, and so do we')
      await store.close()
      before = last
    }
    assert.ok(seen > ROUNDS, `${seen} snapshots were seen`)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})
