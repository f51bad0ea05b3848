import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  appendFileSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync,
  symlinkSync, truncateSync, writeFileSync,
} from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { crc32 } from 'node:zlib'
import { bodyId, moveId, tenantId } from '../../src/core/ids.ts'
import type { Loss } from '../../src/store/bodies.ts'
import { Database } from '../../src/store/database.ts'
import { openStore, type Store, type StoreOptions } from '../../src/store/store.ts'
import { inThread } from '../../src/store/snapshot-thread.ts'
import { StoreError } from '../../src/store/store-error.ts'
import { flipped, pause, storeContract } from './contract.ts'
import { logged } from './facts.ts'

const digestOf = (content: string | Buffer): string => crc32(content).toString(16).padStart(8, '0')

const options = (folder: string, more: Partial<StoreOptions> = {}): StoreOptions => ({
  onFailure: (error) => { throw error },
  onLoss: () => undefined,
  digestFile: async (path) => {
    const content = await readFile(path)
    return content.includes('torn') ? null : digestOf(content)
  },
  imagesDir: join(folder, 'images'),
  imageBytesMax: 1_000_000,
  logRetentionUs: 0,
  bodyBytesMax: 1_000_000,
  makeSnapshot: inThread(new URL('./contract-snapshot.js', import.meta.url)),
  ...more,
})

storeContract('sqlite', () => {
  const folder = mkdtempSync(join(tmpdir(), 'entracte-store-'))
  return {
    open: (given) => openStore(join(folder, 'data'), options(folder, given)),
    writeImage: (store, image, content) => writeFileSync(store.images.path(moveId(image)), content),
    digestOf,
    damageSnapshot(seq) {
      const path = join(folder, 'data', 'snapshots', `${seq}.snapshot`)
      writeFileSync(path, flipped(readFileSync(path)))
    },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  }
})

describe('the store on disk', () => {
  let folder = ''
  let data = ''
  let stores: Store[] = []
  let losses: Loss[] = []
  const open = (more: Partial<StoreOptions> = {}): Store => {
    const store = openStore(data, options(folder, { onLoss: (loss) => losses.push(loss), ...more }))
    stores.push(store)
    return store
  }
  const refusal = (more: Partial<StoreOptions> = {}): StoreError => {
    try {
      open(more)
    } catch (thrown) {
      assert.ok(thrown instanceof StoreError, String(thrown))
      assert.match(thrown.message, /Next: /)
      return thrown
    }
    throw new assert.AssertionError({ message: 'it opened' })
  }
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'entracte-store-'))
    data = join(folder, 'data')
    stores = []
    losses = []
  })
  afterEach(async () => {
    for (const store of stores) await store.close()
    rmSync(folder, { recursive: true, force: true })
  })
  const everyByte = (): Buffer => Buffer.concat(readdirSync(data).filter((name) => name.startsWith('entracte.db'))
    .map((name) => readFileSync(join(data, name))))
  const change = (sql: string): void => {
    const database = new Database(join(data, 'entracte.db'))
    database.execute(sql)
    database.close()
  }

  // ---------------------------------------------------------------- one process at a time

  test('a second store on the same data directory is refused by name, in this process too', async () => {
    const first = open()
    const fault = refusal()
    assert.equal(fault.code, 'data_dir_in_use')
    assert.match(fault.message, new RegExp(`in use by process ${process.pid} on `))
    await first.close()
    open().log.append([logged(1)], true, () => undefined)
  })

  test('another process is refused by name while this one lives', () => {
    open()
    // A second connection of this process to the lock's file, closed again, must not give the lock away.
    assert.equal(refusal().code, 'data_dir_in_use')
    const module = new URL('../../src/store/store.js', import.meta.url).href
    const script = `import { openStore } from ${JSON.stringify(module)}
      try { openStore(${JSON.stringify(data)}, {}); console.log('opened') }
      catch (e) { console.log(e.code, e.message) }`
    const child = spawnSync(process.execPath, ['--input-type=module', '-e', script], { encoding: 'utf8' })
    assert.match(child.stdout, new RegExp(`^data_dir_in_use .*in use by process ${process.pid} `))
  })

  test('a note of a holder that is gone, or half a note, stops nobody', async () => {
    mkdirSync(data)
    writeFileSync(join(data, 'lock.json'), '{"pid":1,"ho')
    await open().close()
    assert.equal(existsSync(join(data, 'lock.json')), false)
  })

  test('a data directory that cannot be made is refused by name', () => {
    writeFileSync(join(folder, 'file'), '')
    data = join(folder, 'file', 'data')
    assert.equal(refusal().code, 'data_dir_unusable')
  })

  // ---------------------------------------------------------------- what is on disk

  test('bodies are sealed: neither text nor key is in the database, and others cannot read the files', async () => {
    const store = open()
    store.bodies.put(bodyId('b1'), tenantId('acme'), Buffer.from('a very secret prompt'))
    await store.close()
    const key = readFileSync(join(data, 'bodies.key'))
    assert.equal(key.length, 32)
    for (const secret of [Buffer.from('a very secret prompt'), key]) assert.equal(everyByte().includes(secret), false)
    assert.ok(everyByte().includes('b1'), 'the test looks at the right bytes')
    for (const name of ['bodies.key', 'entracte.db']) assert.equal(statSync(join(data, name)).mode & 0o077, 0, name)
    assert.equal(statSync(data).mode & 0o077, 0)
  })

  test('facts can be looked at with plain SQL, by kind and program', async () => {
    const store = open()
    store.log.append([logged(1, { kind: 'program.closed', program: 't/p' as never }), logged(2)], true, () => undefined)
    await store.close()
    const database = new Database(join(data, 'entracte.db'))
    const row = database.prepare(
      "SELECT seq, at_us, payload FROM facts WHERE program = 't/p' AND kind = 'program.closed'").first()
    database.close()
    assert.deepEqual([row?.integer('seq'), row?.integer('at_us')], [1, 1_000])
    assert.deepEqual(JSON.parse(row?.text('payload') ?? ''), { kind: 'program.closed', program: 't/p' })
  })

  test('a body changed on disk, or put in another\'s place, is lost and told, never served', async () => {
    const store = open()
    for (const id of ['a', 'b', 'c', 'd', 'e']) {
      store.bodies.put(bodyId(id), tenantId('acme'), Buffer.from(`body of ${id}`))
    }
    await store.close()
    change(`UPDATE bodies SET sealed = zeroblob(40) WHERE id = 'a'`)
    change(`UPDATE bodies SET sealed = substr(sealed, 1, 20) WHERE id = 'b'`)
    change(`UPDATE bodies SET sealed = (SELECT sealed FROM bodies WHERE id = 'e') WHERE id = 'c'`)
    change(`UPDATE bodies SET tenant = 'other' WHERE id = 'd'`)
    const next = open()
    for (const id of ['a', 'b', 'c', 'd']) assert.equal(next.bodies.get(bodyId(id)), null, id)
    assert.equal(Buffer.from(next.bodies.get(bodyId('e')) ?? []).toString(), 'body of e')
    assert.deepEqual(losses.map(({ id }) => id), ['a', 'b', 'c', 'd'])
    assert.equal(next.bodies.count, 1)
  })

  test('a lost or wrong key is refused while there are bodies, and renewed when there are none', async () => {
    const store = open()
    store.bodies.put(bodyId('a'), tenantId('t'), Buffer.from('x'))
    await store.close()
    const key = join(data, 'bodies.key')
    copyFileSync(key, join(folder, 'right.key'))
    for (const wrong of [null, Buffer.alloc(32, 7), Buffer.alloc(5)]) {
      rmSync(key)
      if (wrong !== null) writeFileSync(key, wrong)
      assert.equal(refusal().code, 'body_key_lost')
      if (wrong === null) writeFileSync(key, '')
    }
    copyFileSync(join(folder, 'right.key'), key)
    const again = open()
    assert.equal(Buffer.from(again.bodies.get(bodyId('a')) ?? []).toString(), 'x')
    again.bodies.drop(bodyId('a'))
    await again.close()
    rmSync(key)
    open().bodies.put(bodyId('b'), tenantId('t'), Buffer.from('y'))
    assert.equal(readFileSync(key).length, 32)
  })

  test('a database of a newer release, one that is none, and a fact that is no fact are refused by name', async () => {
    await open().close()
    change('PRAGMA user_version = 99')
    assert.equal(refusal().code, 'store_newer')
    change('PRAGMA user_version = 1')
    change(`INSERT INTO facts VALUES (1, 1, 1, 'x', NULL, '{"kind":')`)
    const store = open()
    assert.throws(() => [...store.log.read()], { code: 'store_corrupt', message: /fact 1 cannot be read/ })
    await store.close()
    for (const name of readdirSync(data).filter((one) => one.startsWith('entracte.db'))) rmSync(join(data, name))
    writeFileSync(join(data, 'entracte.db'), 'not a database '.repeat(1_000))
    assert.equal(refusal().code, 'store_corrupt')
    assert.equal(refusal().code, 'store_corrupt', 'and the lock was given back')
  })

  test('a write that the database refuses stops the store once, and loses nothing that was durable', async () => {
    const failures: StoreError[] = []
    const store = open({ onFailure: (error) => failures.push(error) })
    store.log.append([logged(1)], true, () => undefined)
    await pause(20)
    change(`CREATE TRIGGER full BEFORE INSERT ON facts WHEN NEW.seq > 2 BEGIN SELECT RAISE(ABORT, 'no space'); END`)
    let told = 0
    store.log.append([logged(2), logged(3)], true, () => told++)
    store.log.append([logged(4)], true, () => told++)
    await pause(20)
    assert.deepEqual(failures.map(({ code }) => code), ['store_failed'])
    assert.match(failures[0]?.message ?? '', /no space/)
    assert.equal(told, 0)
    store.log.append([logged(5)], true, () => told++)
    await store.close()
    assert.deepEqual([...open().log.read()].map(({ seq }) => seq), [1])
  })

  test('of a log cut anywhere, whole appends are left, in order', async () => {
    const store = open()
    for (let append = 0; append < 40; append++) {
      store.log.append([0, 1, 2].map((step) => logged(append * 3 + step)), true, () => undefined)
      await pause(1)
    }
    const copy = join(folder, 'copy')
    mkdirSync(copy)
    for (const name of ['entracte.db', 'entracte.db-wal']) copyFileSync(join(data, name), join(copy, name))
    await store.close()
    const walBytes = statSync(join(copy, 'entracte.db-wal')).size
    const lengths: number[] = []
    for (const part of [0.02, 0.3, 0.5, 0.77, 0.999]) {
      data = join(folder, `cut-${part}`)
      mkdirSync(data)
      for (const name of readdirSync(copy)) copyFileSync(join(copy, name), join(data, name))
      truncateSync(join(data, 'entracte.db-wal'), Math.floor(walBytes * part))
      const cut = readIfWhole(open)
      if (cut === null) continue
      assert.equal(cut.length % 3, 0, `cut at ${part}`)
      assert.deepEqual(cut, cut.map((_, index) => index))
      lengths.push(cut.length)
    }
    assert.ok(lengths.length >= 4 && (lengths[0] ?? 0) < (lengths.at(-1) ?? 0), String(lengths))
  })

  // ---------------------------------------------------------------- images

  const image = (store: Store, name: string, content: string): void => {
    writeFileSync(store.images.path(moveId(name)), content)
    store.images.keep(moveId(name), content.length, digestOf(content))
  }

  test('of images, only whole ones with their digest are left; every other file is gone', async () => {
    const store = open()
    for (const name of ['good', 'flipped', 'short', 'gone', 'torn']) image(store, name, `image ${name}`)
    const path = (name: string): string => store.images.path(moveId(name))
    writeFileSync(path('flipped'), 'image flippeD')
    truncateSync(path('short'), 3)
    rmSync(path('gone'))
    writeFileSync(path('stranger'), 'never kept')
    writeFileSync(join(store.images.directory, 'good.kv.partial'), 'half')
    mkdirSync(join(store.images.directory, 'folder'))
    await store.close()
    const next = open()
    assert.deepEqual(await next.images.verify(), ['good'])
    assert.deepEqual(readdirSync(next.images.directory), ['good.kv'])
    const why = Object.fromEntries(losses.map((loss) => [loss.id, loss.why]))
    assert.match(why['flipped'] ?? '', /digest is [0-9a-f]{8} instead of/)
    assert.match(why['short'] ?? '', /3 bytes instead of 11/)
    assert.match(why['gone'] ?? '', /gone/)
    assert.match(why['torn'] ?? '', /not a whole image/)
    assert.equal(losses.length, 4)
    await next.close()
    assert.deepEqual(await open().images.verify(), ['good'], 'the lost ones are out of the table too')
  })

  test('a dropped image\'s file is gone, also one half written, and so is the folder when nothing is left in it', async () => {
    const store = open()
    image(store, 'm1', 'x')
    const path = store.images.path(moveId('m1'))
    assert.ok(existsSync(path))
    store.images.drop(moveId('m1'))
    writeFileSync(`${store.images.path(moveId('m2'))}.partial`, 'x')
    store.images.drop(moveId('m2'))
    await store.close()
    assert.equal(existsSync(path), false)
    assert.equal(existsSync(dirname(path)), false)
  })

  test('an image id that could name another file is refused', () => {
    const store = open()
    for (const name of ['../x', 'a/b', '', '.', 'x'.repeat(65)]) {
      assert.throws(() => store.images.path(moveId(name)), RangeError)
    }
  })

  test('images lie in a folder of our own, open to us alone, whatever else is in the one configured', async () => {
    const shared = join(folder, 'shared')
    mkdirSync(shared)
    writeFileSync(join(shared, 'of somebody else'), 'x')
    const store = open({ imagesDir: shared })
    await store.images.verify()
    assert.deepEqual(readdirSync(shared).length, 2)
    assert.equal(statSync(store.images.directory).mode & 0o077, 0)
  })

  test('a link in the place of that folder is refused', async () => {
    const first = open()
    const directory = first.images.directory
    await first.close()
    mkdirSync(join(folder, 'elsewhere'))
    symlinkSync(join(folder, 'elsewhere'), directory)
    assert.equal(refusal().code, 'data_dir_unusable')
  })

  test('memory-backed storage is used where it is large enough, else the data directory', async () => {
    const small = open({ imagesDir: null, imageBytesMax: Number.MAX_SAFE_INTEGER })
    assert.equal(small.images.directory, join(data, 'kv'))
    await small.close()
    const large = open({ imagesDir: null })
    if (existsSync('/dev/shm')) assert.match(large.images.directory, /^\/dev\/shm\/entracte-[0-9a-f]{16}$/)
    assert.ok(large.images.freeBytes() > 0)
    await large.close()
    assert.equal(existsSync(large.images.directory), false)
  })

  test('a file that grows behind our back does not change what was kept', async () => {
    const store = open()
    image(store, 'm1', 'image')
    appendFileSync(store.images.path(moveId('m1')), '!')
    assert.deepEqual(await store.images.verify(), [])
    assert.equal(store.images.bytes, 0)
  })
})

/** Null where the cut left no database at all, which is refused and not guessed. */
function readIfWhole(open: () => Store): readonly number[] | null {
  try {
    return [...open().log.read()].map(({ seq }) => seq)
  } catch (thrown) {
    assert.ok(thrown instanceof StoreError && thrown.code === 'store_corrupt', String(thrown))
    return null
  }
}
