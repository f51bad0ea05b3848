import assert from 'node:assert/strict'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, before, beforeEach, describe, test } from 'node:test'
import { cachedModels, removeCached } from '../../src/models/cached.ts'
import { markInUse } from '../../src/models/in-use.ts'
import { ModelError } from '../../src/models/model-error.ts'
import { pullModel } from '../../src/models/pull.ts'
import { readReference } from '../../src/models/reference.ts'
import { resolveModel } from '../../src/models/resolve.ts'
import { TINY_MODEL, writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { FakeHub } from './fake-hub.ts'

const hub = new FakeHub()
let folder = ''
let cache = ''
let env: Record<string, string> = {}
let tiny = Buffer.alloc(0)

before(async () => {
  await hub.open()
  const made = mkdtempSync(join(tmpdir(), 'entracte-tiny-'))
  writeTinyGguf(join(made, 'tiny.gguf'))
  tiny = readFileSync(join(made, 'tiny.gguf'))
  rmSync(made, { recursive: true })
})
after(() => hub.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'entracte-pull-'))
  cache = join(folder, 'cache')
  env = { ENTRACTE_CACHE: cache, HF_ENDPOINT: hub.endpoint }
  for (const file of Object.keys(hub.files)) delete hub.files[file]
  hub.files['Tiny-Q8_0.gguf'] = tiny
  hub.fault = {}
  hub.asked = []
})
afterEach(() => rmSync(folder, { recursive: true, force: true }))

const pull = (model: string, more: object = {}) => pullModel({ model, revision: 'main', env, ...more })
const refused = async (asked: Promise<unknown>): Promise<ModelError> => {
  const thrown: unknown = await asked.then(() => null, (error: unknown) => error)
  assert.ok(thrown instanceof ModelError, `it did not fail as a ModelError: ${String(thrown)}`)
  return thrown
}
const contents = (): string[] => readdirSync(cache, { recursive: true }).map(String)
  .filter((name) => statSync(join(cache, name)).isFile() && !name.startsWith('digest-')).sort()
const store = () => hub.asked.filter(({ path }) => path === '/Tiny-Q8_0.gguf')

describe('a model pulled from the hub', () => {
  test('is the repository\'s only file, checked, told of as it comes, and served under its reference', async () => {
    const bytes: number[] = []
    const pulled = await pull('owner/repo', { onProgress: (at: { bytes: number }) => bytes.push(at.bytes) })
    assert.equal(pulled.model, 'owner/repo:Tiny-Q8_0.gguf')
    assert.equal(pulled.digest, TINY_MODEL.digest)
    assert.equal(pulled.wasThere, false)
    assert.equal(bytes.at(-1), tiny.length)
    assert.deepEqual(contents(), ['hub/owner/repo/Tiny-Q8_0.gguf'])
    for (const model of ['owner/repo', 'owner/repo:Q8_0', 'owner/repo:Tiny-Q8_0.gguf', 'Tiny-Q8_0', pulled.path]) {
      assert.equal((await resolveModel({ model, env })).path, pulled.path, model)
    }
  })

  test('is not fetched again where it is there', async () => {
    await pull('owner/repo')
    const asked = store().length
    assert.equal((await pull('owner/repo')).wasThere, true)
    assert.equal(store().length, asked)
  })

  test('is fetched by the token of the environment, which stays behind when another host has the bytes', async () => {
    env['HF_TOKEN'] = 'secret'
    await pull('owner/repo')
    const [listing, file, bytes] = hub.asked
    assert.equal(listing?.authorization, 'Bearer secret')
    assert.equal(file?.authorization, 'Bearer secret')
    assert.equal(bytes?.authorization, null)
  })

  test('that breaks off goes on where it ended, as often as it brings something', async () => {
    hub.fault = { cuts: [100_000, 200_000, 50_000] }
    const pulled = await pull('owner/repo')
    assert.deepEqual(readFileSync(pulled.path), tiny)
    assert.deepEqual(store().map(({ range }) => range), [null, 'bytes=100000-', 'bytes=300000-', 'bytes=350000-'])
  })

  test('that is given up keeps what came, and the next command goes on with it', async () => {
    const caller = new AbortController()
    const first = pull('owner/repo', {
      signal: caller.signal, onProgress: ({ bytes }: { bytes: number }) => { if (bytes >= 300_000) caller.abort(new Error('enough')) },
    })
    hub.fault = { cuts: [300_000] }
    await assert.rejects(first, /enough/)
    const [part = ''] = contents()
    assert.match(part, /Tiny-Q8_0\.gguf\.[0-9a-f]{16}\.part$/)
    const [listed] = await cachedModels(cache)
    assert.equal(listed?.state, 'partial')
    await refused(resolveModel({ model: 'owner/repo', env }))
    const held = statSync(join(cache, part)).size
    hub.asked = []
    assert.deepEqual(readFileSync((await pull('owner/repo')).path), tiny)
    assert.deepEqual(store().map(({ range }) => range), [`bytes=${held}-`])
    assert.deepEqual(contents(), ['hub/owner/repo/Tiny-Q8_0.gguf'])
  })

  test('from a server without ranges begins anew and is whole', async () => {
    hub.fault = { cuts: [100_000], ignoresRanges: true }
    assert.deepEqual(readFileSync((await pull('owner/repo')).path), tiny)
  })

  test('whose bytes are others than the hub said is refused, and nothing of it is kept', async () => {
    hub.fault = { digest: 'f'.repeat(64) }
    assert.match((await refused(pull('owner/repo'))).message, /SHA-256 is 26b101ad.* instead of ffff/)
    assert.deepEqual(contents(), [])
  })

  test('for which the hub has no SHA-256 is refused by name', async () => {
    hub.fault = { digest: null }
    assert.match((await refused(pull('owner/repo'))).message, /gives no SHA-256.*\nNext: fetch the file yourself/)
  })

  test('that does not fit on the disk is refused before a byte is asked for', async () => {
    hub.fault = { bytes: 2 ** 50 }
    const { message } = await refused(pull('owner/repo'))
    assert.match(message, /MB are to come and .* has .* MB left/)
    assert.match(message, /Next: free some disk/)
    assert.equal(store().length, 0)
  })

  test('is refused with what the hub said and what to do', async () => {
    hub.fault = { status: 401, message: 'Invalid username or password.' }
    assert.match((await refused(pull('owner/repo'))).message, /answered 401 Unauthorized: Invalid.*\nNext: .*needs a token in HF_TOKEN/)
    env['HF_TOKEN'] = 'old'
    assert.match((await refused(pull('owner/repo'))).message, /Next: the token in HF_TOKEN is not valid/)
    hub.fault = { status: 403 }
    assert.match((await refused(pull('owner/repo'))).message, /Next: accept the model's terms/)
    hub.fault = { status: 429 }
    assert.match((await refused(pull('owner/repo'))).message, /Next: wait some minutes/)
    hub.fault = {}
    assert.match((await refused(pull('owner/none'))).message, /answered 404 Not Found: Repository not found.*\nNext: look whether owner/)
    env['HF_ENDPOINT'] = 'http://127.0.0.1:9'
    assert.match((await refused(pull('owner/repo'))).message, /could not be listed: .*\nNext: the same command again/)
    env['HF_HUB_OFFLINE'] = '1'
    assert.match((await refused(pull('owner/repo'))).message, /HF_HUB_OFFLINE=1/)
  })

  test('of a repository with several files is chosen by name or by part of it, never by chance', async () => {
    hub.files['Tiny-Q4_K_M.gguf'] = tiny
    hub.files['mmproj-Tiny.gguf'] = tiny
    const { code, message } = await refused(pull('owner/repo'))
    assert.equal(code, 'model_ambiguous')
    assert.match(message, /owner\/repo:Tiny-Q8_0\.gguf: 1 MB\n {2}owner\/repo:Tiny-Q4_K_M\.gguf: 1 MB\nNext: name one/)
    assert.match((await refused(pull('owner/repo:Q5_0'))).message, /has no file Q5_0\. It has:\n.*Tiny-Q8_0/)
    assert.equal((await pull('owner/repo:q4_k_m')).model, 'owner/repo:Tiny-Q4_K_M.gguf')
    await pull('owner/repo:Tiny-Q8_0.gguf')
    assert.equal((await refused(resolveModel({ model: 'owner/repo', env }))).code, 'model_ambiguous')
  })

  test('in several parts, or none, is refused by name', async () => {
    delete hub.files['Tiny-Q8_0.gguf']
    assert.match((await refused(pull('owner/repo'))).message, /has no GGUF file/)
    hub.files['Big-00001-of-00003.gguf'] = tiny
    assert.match((await refused(pull('owner/repo'))).message, /one of 3 parts/)
  })
})

describe('a model file of this machine', () => {
  test('is taken into the cache without being held twice, and stays when the first name goes', async () => {
    const path = join(folder, 'mine.gguf')
    writeFileSync(path, tiny)
    const pulled = await pull(path)
    assert.equal(pulled.model, 'mine')
    assert.equal(statSync(pulled.path).ino, statSync(path).ino)
    assert.equal((await pull(path)).wasThere, true)
    rmSync(path)
    const resolved = await resolveModel({ model: 'mine', env })
    assert.deepEqual([resolved.path, resolved.digest, resolved.source], [pulled.path, TINY_MODEL.digest, 'cache'])
  })

  test('that is no whole model, or not there, is refused and not taken', async () => {
    const path = join(folder, 'mine.gguf')
    assert.match((await refused(pull(path))).message, /There is no model file/)
    writeFileSync(path, tiny)
    truncateSync(path, tiny.length - 1)
    assert.match((await refused(pull(path))).message, /is cut short: its last tensor ends at byte 919264 and the file at 919263/)
    writeFileSync(path, '<html>')
    assert.match((await refused(pull(path))).message, /is not a GGUF file: it begins with "<htm"/)
    assert.deepEqual(contents(), [])
  })

  test('does not take the place of another of its name', async () => {
    const [path, other] = [join(folder, 'mine.gguf'), join(folder, 'b', 'mine.gguf')]
    writeFileSync(path, tiny)
    await pull(path)
    mkdirSync(join(folder, 'b'))
    writeFileSync(other, Buffer.concat([tiny, Buffer.alloc(32)]))
    assert.match((await refused(pull(other))).message, /Another model called mine\.gguf is in the cache/)
  })
})

describe('the cache of models', () => {
  test('lists each with what its head says', async () => {
    assert.deepEqual(await cachedModels(cache), [])
    await pull('owner/repo')
    await pull('tiny')
    writeFileSync(join(cache, 'hub', 'owner', 'repo', 'bad.gguf'), 'GGUF half of it')
    const models = await cachedModels(cache)
    assert.deepEqual(models.map(({ model, state }) => [model, state]), [
      ['owner/repo:Tiny-Q8_0.gguf', 'whole'], ['owner/repo:bad.gguf', 'damaged'], ['tiny', 'whole'],
    ])
    assert.deepEqual(models[0]?.head, {
      bytes: tiny.length, architecture: 'llama', name: TINY_MODEL.name, licence: 'apache-2.0', quantisation: 'Q8_0',
      contextTokens: 32_768, hasTemplate: true, parameters: 855_168, parts: 1,
    })
  })

  test('gives back what is removed, with what was left of its downloads, and no more', async () => {
    await pull('tiny')
    const { path } = await pull('owner/repo')
    writeFileSync(`${path}.0123456789abcdef.part`, 'GG')
    const removed = await removeCached(cache, readReference('owner/repo'), 'owner/repo')
    assert.equal(removed.length, 2)
    assert.deepEqual(readdirSync(cache).filter((name) => !name.startsWith('digest-')).length, 1)
    assert.equal((await refused(removeCached(cache, readReference('owner/repo'), 'owner/repo'))).code, 'model_not_found')
  })

  test('keeps what a living process serves, and not what a dead one did', async () => {
    const { path } = await pull('owner/repo')
    const release = markInUse(cache, path)
    const { code, message } = await refused(removeCached(cache, readReference('owner/repo'), 'owner/repo'))
    assert.equal(code, 'model_in_use')
    assert.match(message, new RegExp(`served by process ${process.pid}`))
    assert.ok(existsSync(path))
    const note = readdirSync(cache).find((name) => name.startsWith('use-')) ?? ''
    writeFileSync(join(cache, note.replace(/-\d+$/, '-999999999')), path)
    release()
    markInUse(cache, path)()
    assert.deepEqual(readdirSync(cache).filter((name) => name.startsWith('use-')), [], 'who comes next clears what the dead left')
    writeFileSync(join(cache, note.replace(/-\d+$/, '-999999999')), path)
    await removeCached(cache, readReference('owner/repo'), 'owner/repo')
    assert.ok(!existsSync(path))
    assert.deepEqual(readdirSync(cache).filter((name) => name.startsWith('use-')), [])
  })
})

describe('what a person writes for a model', () => {
  test('is read one way only', () => {
    const there = join(folder, 'a')
    mkdirSync(there)
    for (const [text, kind] of [
      ['default', 'default'], ['smollm2-135m-instruct', 'default'], ['tiny', 'tiny'], ['owner/repo', 'hub'],
      ['owner/repo:sub/file.gguf', 'hub'], ['owner/repo:Q4_K_M', 'hub'], ['./owner/repo', 'path'], ['models/a.gguf', 'path'],
      ['a.gguf', 'path'], ['/a/b', 'path'], ['a/b/c', 'path'], ['C:\\models\\a.gguf', 'path'], ['mine', 'name'], [there, 'path'],
      ['owner/repo:../../x.gguf', 'path'],
    ] as const) assert.equal(readReference(text).kind, kind, text)
  })
})
