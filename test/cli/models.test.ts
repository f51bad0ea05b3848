import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { FakeHub } from '../models/fake-hub.ts'
import { shapeFile } from '../models/shapes.ts'
import { entracte, MAIN } from './command.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-cli-models-'))
const hub = new FakeHub()
const mine = join(folder, 'mine.gguf')
let env: Record<string, string> = {}
before(async () => {
  await hub.open()
  writeTinyGguf(mine)
  env = { ENTRACTE_CACHE: join(folder, 'cache'), HF_ENDPOINT: hub.endpoint }
})
after(() => {
  hub.close()
  rmSync(folder, { recursive: true, force: true })
})

const models = (...args: readonly string[]) => entracte(['models', ...args], { cwd: folder, env })

describe('entracte models', () => {
  test('shows help for itself and each of its verbs, with code 0', async () => {
    for (const verb of ['ls', 'pull', 'show', 'rm']) {
      assert.match((await models('--help')).stdout, new RegExp(`\\n {2}${verb} `))
      const { code, stdout } = await models(verb, '--help')
      assert.equal(code, 0)
      assert.match(stdout, new RegExp(`^Usage: entracte models ${verb}[^]*--json`))
    }
    assert.equal((await models('nope')).code, 2)
    assert.equal((await models('pull')).code, 2)
  })

  test('pulls, lists and removes; the name it prints is the name to use', async () => {
    assert.match((await models('ls')).stdout, /^no models in .*models pull default/)
    const pulled = await models('pull', './mine.gguf')
    assert.deepEqual([pulled.code, pulled.stdout], [0, 'mine\n'])
    assert.match(pulled.stderr, /is here, checksum ok: .*\nnext: entracte serve --model mine/)
    const { stdout } = await models('ls')
    assert.match(stdout, /^model +size +quantisation +context +architecture +licence\nmine +897\.7 KiB +Q8_0 +32768 +llama +apache-2\.0\n$/)
    const listed = JSON.parse((await models('ls', '--json')).stdout) as { models: { model: string; path: string }[] }
    assert.equal(listed.models[0]?.model, 'mine')
    const removed = await models('rm', 'mine')
    assert.match(removed.stdout, /^removed .*mine\.gguf, 897\.7 KiB\n$/)
    assert.ok(existsSync(mine), 'the file it was taken from is somebody else\'s')
  })

  test('ends with code 1 and says what, why and what next where a model cannot be had', async () => {
    const absent = await models('pull', 'owner/none')
    assert.equal(absent.code, 1)
    assert.match(absent.stderr, /^entracte: owner\/none could not be listed: .*404.*\n {2}next: look whether owner/)
    writeFileSync(join(folder, 'page.gguf'), '<html>')
    assert.match((await models('pull', './page.gguf')).stderr, /is not a GGUF file.*\n {2}next: convert the model/)
    assert.match((await models('rm', 'mine')).stderr, /There is no model mine.*\n {2}next: "entracte models ls"/)
  })
})

describe('a server and its model file', () => {
  const serve = (model: string): { readonly child: ChildProcess; said(part: string): Promise<string> } => {
    const child = spawn(process.execPath, [MAIN, 'serve', '--model', model, '--port', '0', '--data', join(folder, `data-${model}`)], {
      cwd: folder, env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'],
    })
    let text = ''
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (more: string) => { text += more })
    const said = async (part: string): Promise<string> => {
      while (!text.includes(part)) {
        assert.equal(child.exitCode, null, text)
        await Promise.race([once(child.stdout, 'data'), once(child.stderr, 'data'), once(child, 'exit')])
      }
      return text
    }
    return { child, said }
  }

  test('while it serves the file is not removed, afterwards it is', async () => {
    await models('pull', './mine.gguf')
    const { child, said } = serve('mine')
    await said('an engine has joined')
    const refused = await models('rm', 'mine')
    assert.equal(refused.code, 1)
    assert.match(refused.stderr, new RegExp(`mine is served by process ${child.pid}\\.\\n {2}next: stop that server first`))
    child.kill('SIGTERM')
    await once(child, 'exit')
    assert.equal((await models('rm', 'mine')).code, 0)
  })

  test('one that its engine cannot serve leaves the door open, and is told once', async () => {
    const bytes = shapeFile('grouped')
    bytes.write('zzama', bytes.indexOf('llama'))
    writeFileSync(join(folder, 'unknown.gguf'), bytes)
    const { child, said } = serve('unknown.gguf')
    const text = await said('it stays lost')
    assert.match(text, /unknown model architecture: 'zzama'.*does not know such models; take one that it knows\.; it stays lost: it would end the same/)
    const url = /Server listening at (http:[^"]+)/.exec(await said('Server listening at'))?.[1] ?? ''
    const ready = await fetch(`${url}/readyz`)
    assert.deepEqual([ready.status, await ready.json()], [503, { status: 'starting', engines: [{ id: 'local', stage: 'refused' }] }])
    assert.equal(child.exitCode, null)
    child.kill('SIGTERM')
    await once(child, 'exit')
    assert.doesNotMatch(await said(''), /serves http/, 'who is told to stop does not say that he serves')
  })

  test('one that is cut short is refused before the server starts', async () => {
    writeFileSync(join(folder, 'cut.gguf'), shapeFile('grouped').subarray(0, -1))
    const { code, stderr } = await entracte(['serve', '--model', 'cut.gguf', '--port', '0', '--data', join(folder, 'data-cut')], { cwd: folder, env })
    assert.equal(code, 1)
    assert.match(stderr, /cut\.gguf is cut short.*\n {2}next: fetch the file again/)
  })
})
