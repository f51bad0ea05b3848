import assert from 'node:assert/strict'
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { crc32 } from 'node:zlib'
import { joinCrc } from '../../src/engine/crc-join.ts'
import { ImageError, readImage, writeImage } from '../../src/engine/kv-image.ts'
import type { ImageAbout } from '../../src/engine/kv-image.ts'
import { makeBlob } from './blobs.ts'
import type { MadeBlob } from './blobs.ts'
import { emptyBlob } from '../../src/engine/llama/blob.ts'

let folder: string
before(() => { folder = mkdtempSync(join(tmpdir(), 'entracte-image-')) })
after(() => rmSync(folder, { recursive: true, force: true }))

const MADE: MadeBlob = { tokens: 7, layers: 2, keyBytes: 6, valueWidth: 3, transposed: true, streams: 4, stream: 2 }

const ABOUT: ImageAbout = {
  key: 'kv1/made-up',
  model: { digest: 'm0', tokenizer: 't0', template: 'c0', adapter: '' },
  library: 'llama.cpp-0.4.0-00000000',
  cpuKernel: 'none',
  identity: { tenant: 'acme', state: 's1', owner: 'thread:1', epoch: 2, reign: 5 },
  spans: [
    { id: 'prefix', tokens: 4, origin: 'prefilled' }, { id: 'answer', tokens: 2, origin: 'decoded' },
    { id: 'tail', tokens: 1, origin: 'prefilled' },
  ],
}

const WANTED = { key: ABOUT.key, identity: ABOUT.identity }

const refused = (...reasons: string[]) => (error: unknown): boolean => {
  assert(error instanceof ImageError, String(error))
  assert(reasons.includes(error.reason), `${error.reason}: ${error.message}`)
  return true
}

/** The lane of the source is another matter than its State: the first stream's is the normal form. */
const normal = (made: MadeBlob, streams: number): Buffer => makeBlob({ ...made, streams, stream: 0 })

describe('an image', () => {
  for (const transposed of [true, false]) {
    test(`comes back byte for byte, V ${transposed ? 'in columns' : 'in rows'}, for any number of lanes`, async () => {
      const made = { ...MADE, transposed }
      const path = join(folder, `whole-${transposed}`)
      const { bytes, digest } = await writeImage(path, makeBlob(made), ABOUT)
      assert.equal(bytes, statSync(path).size)
      for (const lanes of [1, 4, 8]) {
        const { blob } = await readImage(path, { ...WANTED, digest }, lanes)
        assert.deepEqual(Buffer.from(blob), normal(made, lanes))
      }
    })
  }

  test('has the digest that anybody computes over the file', async () => {
    const path = join(folder, 'digest')
    const { digest } = await writeImage(path, makeBlob(MADE), ABOUT)
    assert.equal(digest, crc32(readFileSync(path)).toString(16).padStart(8, '0'))
  })

  test('keeps one chunk a span, and an equal span is an equal chunk in another State', async () => {
    const short = join(folder, 'short')
    const one = await writeImage(join(folder, 'long'), makeBlob(MADE), ABOUT)
    const two = await writeImage(short, makeBlob({ ...MADE, tokens: 4, streams: 1, stream: 0 }), {
      ...ABOUT, spans: [{ id: 'prefix', tokens: 4, origin: 'prefilled' }],
    })
    assert.deepEqual(one.manifest.chunks.map((chunk) => [chunk.id, chunk.position, chunk.tokens, chunk.origin]), [
      ['prefix', 0, 4, 'prefilled'], ['answer', 4, 2, 'decoded'], ['tail', 6, 1, 'prefilled'],
    ])
    assert.equal(two.manifest.chunks[0]?.crc32, one.manifest.chunks[0]?.crc32)
    assert.equal(two.manifest.chunks[0]?.bytes, 4 * 2 * (6 + 3 * 2))
  })

  test('is cut into spans at any place with the same bytes coming back', async () => {
    const path = join(folder, 'cuts')
    for (let first = 1; first < MADE.tokens; first++) {
      const spans = [
        { id: 'a', tokens: first, origin: 'prefilled' as const },
        { id: 'b', tokens: MADE.tokens - first, origin: 'decoded' as const },
      ]
      const { digest } = await writeImage(path, makeBlob(MADE), { ...ABOUT, spans })
      const { blob } = await readImage(path, { ...WANTED, digest }, 2)
      assert.deepEqual(Buffer.from(blob), normal(MADE, 2))
    }
  })

  test('says what it is', async () => {
    const path = join(folder, 'about')
    const { digest } = await writeImage(path, makeBlob(MADE), ABOUT)
    const { manifest } = await readImage(path, { ...WANTED, digest }, 1)
    const { spans, ...about } = ABOUT
    const { tokens, form, chunks, ...rest } = manifest
    assert.deepEqual(rest, about)
    assert.equal(tokens, 7)
    assert.equal(chunks.length, spans.length)
    assert.deepEqual(form.values, [{ type: 1, cellBytes: 2, rows: 3 }, { type: 1, cellBytes: 2, rows: 3 }])
  })

  test('is read by its owner alone', { skip: process.platform === 'win32' }, async () => {
    const path = join(folder, 'mode')
    await writeImage(path, makeBlob(MADE), ABOUT)
    assert.equal(statSync(path).mode & 0o077, 0)
  })
})

interface Written { readonly path: string; readonly digest: string; readonly bytes: Buffer }

async function write(name: string): Promise<Written> {
  const path = join(folder, name)
  const { digest } = await writeImage(path, makeBlob(MADE), ABOUT)
  return { path, digest, bytes: readFileSync(path) }
}

describe('an image is refused', () => {
  test('where it is not there', async () => {
    await assert.rejects(readImage(join(folder, 'nowhere'), { ...WANTED, digest: '00000000' }, 1), refused('missing'))
    await assert.rejects(readImage(folder, { ...WANTED, digest: '00000000' }, 1), refused('missing'))
  })

  test('at every length but its own', async () => {
    const { path, digest, bytes } = await write('lengths')
    for (let length = 0; length < bytes.length; length++) {
      writeFileSync(path, bytes.subarray(0, length))
      await assert.rejects(readImage(path, { ...WANTED, digest }, 1), refused('truncated'), `${length} bytes`)
    }
    writeFileSync(path, Buffer.concat([bytes, Buffer.alloc(1)]))
    await assert.rejects(readImage(path, { ...WANTED, digest }, 1), refused('format'))
  })

  test('with any one bit flipped', async () => {
    const { path, digest, bytes } = await write('bits')
    for (let at = 0; at < bytes.length; at++) {
      const flipped = Buffer.from(bytes)
      flipped[at] = (flipped[at] ?? 0) ^ (1 << (at % 8))
      writeFileSync(path, flipped)
      await assert.rejects(readImage(path, { ...WANTED, digest }, 1),
        refused('format', 'version', 'digest', 'truncated'), `byte ${at}`)
    }
  })

})

test('a State of many pieces comes back whole, whatever the spans', async () => {
  const path = join(folder, 'large')
  const plane = (cellBytes: number, rows: number): { type: number; cellBytes: number; rows: number } => (
    { type: 1, cellBytes, rows })
  // Planes of 0.9 to 5.4 MB: several in a piece, and one longer than a piece.
  const form = {
    transposed: true, keys: [plane(1_500, 1), plane(9_000, 1), plane(1_700, 1)],
    values: [plane(2, 750), plane(2, 1_100), plane(2, 850)],
  }
  const { bytes, blob } = emptyBlob(form, 600, 2)
  let seed = 1
  for (const { offset, cellBytes, rows } of blob.planes) {
    for (let at = offset; at < offset + cellBytes * rows * 600; at++) {
      seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0
      bytes[at] = seed >>> 24
    }
  }
  for (const counts of [[600], [1, 598, 1], [300, 300], [599, 1], [200, 250, 150]]) {
    const spans = counts.map((tokens, index) => ({ id: `span ${index}`, tokens, origin: 'prefilled' as const }))
    const { digest } = await writeImage(path, bytes, { ...ABOUT, spans })
    assert.equal(digest, crc32(readFileSync(path)).toString(16).padStart(8, '0'))
    const { blob: read } = await readImage(path, { ...WANTED, digest }, 2)
    assert(bytes.equals(read), `spans of ${counts.join(', ')}`)
  }
})

describe('an image that is not the one wanted is refused', () => {
  test('with pieces of it changed for others, digests within it set right', async () => {
    const { path, digest, bytes } = await write('swapped')
    const other = makeBlob({ ...MADE, tokens: 7, stream: 0 })
    other[other.length - 30] = (other[other.length - 30] ?? 0) ^ 255
    const forged = join(folder, 'forged')
    await writeImage(forged, other, ABOUT)
    await assert.rejects(readImage(forged, { ...WANTED, digest }, 1), refused('digest'))
    const manifestBytes = bytes.readUInt32LE(12)
    for (const text of ['{}', '[]', 'null', '{', '{"key":1}', JSON.stringify({ key: 'x'.repeat(99) })]) {
      const head = Buffer.from(bytes.subarray(0, 20))
      head.writeUInt32LE(text.length, 12)
      head.writeUInt32LE(crc32(text), 16)
      writeFileSync(path, Buffer.concat([head, Buffer.from(text), bytes.subarray(20 + manifestBytes)]))
      await assert.rejects(readImage(path, { ...WANTED, digest }, 1), refused('format'), text)
    }
  })

  test('with a field of its manifest that no writer writes', async () => {
    const { path, bytes } = await write('fields')
    const length = bytes.readUInt32LE(12)
    const whole = bytes.subarray(20, 20 + length).toString()
    const changes: readonly [string, string][] = [
      ['"tokens":7', '"tokens":8'], ['"tokens":4', '"tokens":5'], ['"tokens":4', '"tokens":-4'],
      ['"tokens":4', '"tokens":1e99'],
      ['"position":4', '"position":3'], ['"bytes":48', '"bytes":47'], ['"transposed":true', '"transposed":1'],
      ['"transposed":true', '"transposed":false'], ['"decoded"', '"guessed"'], ['"epoch":2', '"epoch":"2"'],
      ['[1,6,1]', '[1,6]'], ['[1,6,1]', '[1,6,1,1]'], ['[1,6,1]', '[1,7,1]'], ['[1,6,1]', '[1,9007199254740993,1]'],
      ['"keys":[', '"keys":[[1,6,1],'],
    ]
    for (const [from, to] of changes) {
      assert(whole.includes(from), from)
      const text = Buffer.from(whole.replace(from, to))
      const head = Buffer.from(bytes.subarray(0, 20))
      head.writeUInt32LE(text.length, 12)
      head.writeUInt32LE(crc32(text), 16)
      const file = Buffer.concat([head, text, bytes.subarray(20 + length)])
      writeFileSync(path, file)
      const digest = crc32(file).toString(16).padStart(8, '0')
      await assert.rejects(readImage(path, { ...WANTED, digest }, 1), refused('format'), `${from} as ${to}`)
    }
  })

  test('where it belongs to another model, tenant or State, or comes from the future', async () => {
    const { path, digest } = await write('foreign')
    const { identity } = ABOUT
    const others = [
      { key: 'kv1/another', identity }, { key: ABOUT.key, identity: { ...identity, tenant: 'other' } },
      { key: ABOUT.key, identity: { ...identity, state: 's2' } },
      { key: ABOUT.key, identity: { ...identity, reign: 4 } },
      { key: ABOUT.key, identity: { ...identity, epoch: 1 } },
    ]
    for (const other of others) await assert.rejects(readImage(path, { ...other, digest }, 1), refused('identity'))
    const later = { ...identity, reign: 6, epoch: 3, owner: 'session:9' }
    await readImage(path, { key: ABOUT.key, identity: later, digest }, 1)
  })

})

describe('an image of a later release, or one that cannot be written,', () => {
  test('is refused where this build does not know its format version', async () => {
    const { path, digest, bytes } = await write('version')
    bytes.writeUInt32LE(2, 8)
    writeFileSync(path, bytes)
    await assert.rejects(readImage(path, { ...WANTED, digest }, 1), refused('version'))
  })

  test('leaves nothing behind', async () => {
    const inside = mkdtempSync(join(folder, 'unwritten-'))
    const path = join(inside, 'image')
    await assert.rejects(writeImage(path, makeBlob(MADE), { ...ABOUT, spans: ABOUT.spans.slice(1) }), refused('format'))
    await assert.rejects(writeImage(join(inside, 'no', 'image'), makeBlob(MADE), ABOUT), refused('unwritable'))
    for (const length of [0, 8, 50, 100, makeBlob(MADE).length - 1]) {
      const cut = makeBlob(MADE).subarray(0, length)
      await assert.rejects(writeImage(path, cut, ABOUT), refused('format'), `${length} bytes`)
    }
    assert.deepEqual(readdirSync(inside), [])
    assert(!existsSync(path))
  })
})

describe('the durable format', () => {
  const golden = goldenFolder()

  for (const name of ['columns', 'rows'] as const) {
    const file = join(golden, `kv-image-v1-${name}.bin`)
    const made = { ...MADE, transposed: name === 'columns' }

    test(`version 1 of every release is read (${name})`, async () => {
      const digest = crc32(readFileSync(file)).toString(16).padStart(8, '0')
      const { blob, manifest } = await readImage(file, { ...WANTED, digest }, 4)
      assert.deepEqual(Buffer.from(blob), normal(made, 4))
      assert.deepEqual(manifest.chunks.map((chunk) => chunk.origin), ['prefilled', 'decoded', 'prefilled'])
    })

    test(`version 1 is written as ever (${name})`, async () => {
      const path = join(folder, name)
      await writeImage(path, makeBlob(made), ABOUT)
      if (process.env['ENTRACTE_WRITE_GOLDEN'] === '1') writeFileSync(file, readFileSync(path))
      assert.deepEqual(readFileSync(path), readFileSync(file))
    })
  }
})

test('digests of two pieces join to the digest of both', () => {
  const bytes = Buffer.from(Array.from({ length: 4096 }, (_, index) => (index * index + 7) % 256))
  for (const at of [0, 1, 2, 63, 64, 1000, 4095, 4096]) {
    const joined = joinCrc(crc32(bytes.subarray(0, at)), crc32(bytes.subarray(at)), bytes.length - at)
    assert.equal(joined, crc32(bytes), `at ${at}`)
  }
})

/** Beside the sources: golden files are not compiled. */
function goldenFolder(): string {
  for (let at = import.meta.dirname; at !== dirname(at); at = dirname(at)) {
    const folder = join(at, 'test', 'golden')
    if (existsSync(join(folder, 'kv-image-v1-rows.bin')) || existsSync(join(at, 'tsconfig.json'))) return folder
  }
  throw new Error('no test/golden above this test: run it from a checkout')
}
