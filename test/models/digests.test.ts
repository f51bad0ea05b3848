import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { digestOf, DIGESTS_MAX, noteDigest } from '../../src/models/cache.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-digests-'))
after(() => rmSync(folder, { recursive: true, force: true }))

test('digests are kept of so many files, and those noted longest ago go first', async () => {
  const cache = join(folder, 'cache')
  mkdirSync(cache)
  const file = (at: number): string => join(folder, `file-${at}`)
  for (let at = 0; at < DIGESTS_MAX; at++) {
    const before = at === 0 ? [] : readdirSync(cache)
    writeFileSync(file(at), `${at}`)
    await noteDigest(cache, file(at), `noted ${at}`)
    const fresh = readdirSync(cache).find((name) => !before.includes(name))
    utimesSync(join(cache, fresh ?? ''), 1_000 + at, 1_000 + at)
  }
  writeFileSync(join(cache, 'probes.json'), '{}')
  writeFileSync(file(DIGESTS_MAX), 'one more')
  await digestOf(cache, file(DIGESTS_MAX))
  assert.equal(readdirSync(cache).length, DIGESTS_MAX + 1)
  assert.equal(await digestOf(cache, file(1)), 'noted 1')
  assert.match(await digestOf(cache, file(0)), /^[0-9a-f]{64}$/)
})
