/** A server before an engine that `entracte engine` serves: one stream over losses, KV through our own host tier. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { freePort } from '../engines/remote-engine.ts'
import { completion, folder, MODEL, proven, served, until } from './served.ts'

const MAIN = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))
const HELLO = [{ role: 'user', content: 'Say something long, please.' }]

async function engineProcess(): Promise<{ port: number; secretFile: string }> {
  const dir = folder()
  const port = await freePort()
  const secretFile = join(dir, 'secret')
  writeFileSync(secretFile, 'known on both sides\n')
  writeFileSync(join(dir, 'engine.yaml'), JSON.stringify({ engines: [{ id: 'box', kind: 'embedded', model: 'tiny', lanes: 2, laneTokens: 2_048, threads: 1 }] }))
  const child = spawn(process.execPath, [MAIN, 'engine', '--config', join(dir, 'engine.yaml'), '--listen', `127.0.0.1:${port}`, '--secret-file', secretFile], { stdio: ['ignore', 'ignore', 'pipe'] })
  let said = ''
  child.stderr.on('data', (bytes: Buffer) => { said += bytes.toString() })
  after(async () => {
    child.kill('SIGTERM')
    await until(() => child.exitCode !== null || child.signalCode !== null)
  })
  await until(() => said.includes('the engine listens on') || child.exitCode !== null, 60_000)
  assert.equal(child.exitCode, null, said)
  return { port, secretFile }
}

test('a program goes on from images that went over the wire, with the tokens it has where its KV stays on the device', async () => {
  const texts: string[] = []
  for (const residency of ['always-preserve', 'always-offload']) {
    const { port, secretFile } = await engineProcess()
    const server = await served({ residency }, { id: 'far', kind: 'remote', model: MODEL, host: '127.0.0.1', port, secretFile })
    await proven(server)
    const messages: object[] = [...HELLO]
    for (let turn = 0; turn < 3; turn++) {
      const answer = await completion(server.url, { messages, max_tokens: 60, seed: 7, temperature: 0.9 }, { 'x-session-id': 's' })
      const { message } = answer.choices[0] ?? assert.fail()
      texts.push(message.content ?? '')
      messages.push(message, { role: 'user', content: 'And then?' })
      await until(() => server.driver.core.moves.size === 0)
    }
    if (residency === 'always-offload') assert.ok(server.driver.core.host.ownedBytes > 0, 'no image came over')
    await server.close()
  }
  assert.deepEqual(texts.slice(3), texts.slice(0, 3))
})
