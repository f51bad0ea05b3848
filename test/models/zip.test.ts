import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { extractEntry } from '../../src/models/zip.ts'
import { zipOf } from './zip-of.ts'

describe('a zip file', () => {
  let folder = ''
  before(() => { folder = mkdtempSync(join(tmpdir(), 'entracte-zip-')) })
  after(() => rmSync(folder, { recursive: true, force: true }))

  const content = Buffer.from('model '.repeat(50_000))
  const extract = async (zip: Buffer, suffix = '.gguf', seen: number[] = []): Promise<Buffer> => {
    const path = join(folder, 'a.zip')
    const target = join(folder, 'out')
    writeFileSync(path, zip)
    await extractEntry(path, suffix, target, (bytes, total) => { seen.push(bytes / total) })
    return readFileSync(target)
  }

  for (const method of ['stored', 'deflated'] as const) {
    test(`gives a ${method} entry back byte for byte and tells how far it is`, async () => {
      const seen: number[] = []
      const zip = zipOf([{ name: 'a/readme', content: Buffer.from('x') }, { name: 'a/m.gguf', content, method }])
      assert.deepEqual(await extract(zip, '.gguf', seen), content)
      assert.equal(seen.at(-1), 1)
      assert.deepEqual(seen, [...seen].sort((a, b) => a - b))
    })
  }

  test('is found behind a comment', async () => {
    const zip = zipOf([{ name: 'm.gguf', content }], 'a comment of some length')
    assert.deepEqual(await extract(zip), content)
  })

  test('without the entry, or with two of them, is refused', async () => {
    await assert.rejects(extract(zipOf([{ name: 'a', content }])), /0 entries end in \.gguf/)
    const two = zipOf([{ name: 'a.gguf', content }, { name: 'b.gguf', content }])
    await assert.rejects(extract(two), /2 entries end in \.gguf/)
  })

  test('that is cut short anywhere is refused', async () => {
    const zip = zipOf([{ name: 'm.gguf', content, method: 'deflated' }])
    for (const bytes of [0, 3, 21, 22, zip.length >> 1, zip.length - 23, zip.length - 1]) {
      await assert.rejects(extract(zip.subarray(0, bytes)), `${bytes} of ${zip.length} bytes`)
    }
  })

  test('whose entry unpacks to more or fewer bytes than it says is refused', async () => {
    const entry = { name: 'm.gguf', content, method: 'deflated' } as const
    await assert.rejects(extract(zipOf([{ ...entry, bytes: content.length - 1 }])), /more than its/)
    await assert.rejects(extract(zipOf([{ ...entry, bytes: content.length + 1 }])), /ends after/)
  })

  test('packed or encrypted in a way we do not read is refused by name', async () => {
    await assert.rejects(extract(zipOf([{ name: 'm.gguf', content, methodNumber: 12 }])), /method 12/)
    await assert.rejects(extract(zipOf([{ name: 'm.gguf', content, flags: 1 }])), /encrypted/)
  })
})
