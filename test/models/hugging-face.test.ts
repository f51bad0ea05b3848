import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { fetchHubFile } from '../../src/models/hugging-face.ts'

describe('the hub', () => {
  const content = Buffer.from('weights '.repeat(10_000))
  let answer: (request: IncomingMessage, response: ServerResponse) => void = () => undefined
  let server: Server
  let endpoint = ''
  let folder = ''
  let outs = 0
  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'entracte-hub-'))
    server = createServer((request, response) => answer(request, response))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
    endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  })
  after(() => {
    server.closeAllConnections()
    server.close()
    rmSync(folder, { recursive: true, force: true })
  })

  const wanted = { repository: 'someone/model', revision: 'abc', file: 'm.gguf', bytes: content.length }
  const ask = (
    env: Record<string, string> = {}, signal?: AbortSignal, onBytes: (bytes: number) => void = () => undefined,
  ) => {
    const target = join(folder, `out-${++outs}`)
    return fetchHubFile(wanted, target, { HF_ENDPOINT: `${endpoint}/`, ...env }, signal, onBytes)
      .then(() => readFileSync(target))
  }

  test('is asked where its own tools would ask, with their token, and its redirect is followed', async () => {
    const asked: string[] = []
    answer = (request, response) => {
      asked.push(`${request.url} ${request.headers.authorization ?? 'no token'}`)
      if (request.url === '/store') response.end(content)
      else response.writeHead(302, { location: '/store' }).end()
    }
    let told = 0
    assert.deepEqual(await ask({ HF_TOKEN: 'secret' }, undefined, (bytes) => { told = bytes }), content)
    assert.deepEqual(asked, ['/someone/model/resolve/abc/m.gguf Bearer secret', '/store Bearer secret'])
    assert.equal(told, content.length)
  })

  test('that refuses is quoted', async () => {
    answer = (_, response) => { response.writeHead(401, 'Unauthorized').end('no') }
    await assert.rejects(ask(), /answered 401 Unauthorized/)
  })

  test('that sends more than the file has is stopped', async () => {
    answer = (_, response) => { response.end(Buffer.concat([content, Buffer.from('x')])) }
    await assert.rejects(ask(), /longer than its 80000 bytes/)
  })

  test('that breaks off in the middle is a fault', async () => {
    answer = (_, response) => {
      response.writeHead(200, { 'content-length': content.length })
      response.write(content.subarray(0, 100), () => response.destroy())
    }
    await assert.rejects(ask())
  })

  test('that nobody answers for is given up after five seconds', async () => {
    answer = () => undefined
    const startedMs = performance.now()
    await assert.rejects(ask(), /no answer within 5 s/)
    assert.ok(performance.now() - startedMs < 8_000)
  })

  test('is left at once when the caller has had enough', async () => {
    const caller = new AbortController()
    answer = (_, response) => {
      response.writeHead(200)
      response.write('x', () => caller.abort(new Error('enough')))
    }
    await assert.rejects(ask({}, caller.signal), /enough/)
  })
})
