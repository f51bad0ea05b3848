import assert from 'node:assert/strict'
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { entracte, MAIN } from './command.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-serve-'))
const config = join(folder, 'config.yaml')
const data = join(folder, 'data')
let child: ChildProcess
let said = ''
let url = ''

before(async () => {
  writeFileSync(config, [
    'listen: { port: 0 }', 'logLevel: warn', `imagesDir: ${join(folder, 'images')}`, 'engines:', '  - id: script', '    kind: scripted', '    script:',
    '      - match: What is', '        toolCalls: [{ name: multiply, arguments: { a: 6, b: 7 } }]', '      - text: It is 42.',
  ].join('\n'))
  child = spawn(process.execPath, [MAIN, 'serve', '--config', config, '--data', data], { stdio: ['ignore', 'pipe', 'inherit'] })
  child.stdout?.setEncoding('utf8').on('data', (text: string) => { said += text })
  while (!said.includes('entracte programs')) await once(child.stdout as NonNullable<typeof child.stdout>, 'data')
  url = /serves (http:\S+)\/v1/.exec(said)?.[1] ?? ''
})
after(() => {
  child.kill('SIGKILL')
  rmSync(folder, { recursive: true, force: true })
})

interface Answer { readonly entracte: { readonly program: string }; readonly choices: readonly { readonly message: { readonly content: string; readonly tool_calls?: readonly { readonly id: string }[] } }[] }

describe('entracte serve', () => {
  test('prints a curl line that works as it stands', async () => {
    const line = /curl (\S+) -H '([^:]+): ([^']+)' \\\n +-d '(.+)'/.exec(said)
    assert.ok(line, said)
    const [, at = '', header = '', value = '', body = ''] = line
    const answer = await (await fetch(at, { method: 'POST', headers: { [header]: value }, body })).json() as Answer
    assert.equal(answer.choices[0]?.message.content, 'It is 42.')
  })

  test('explains a program that waits for its tool, and then where its time went', async () => {
    const chat = async (messages: readonly object[]): Promise<Answer> => {
      const body = JSON.stringify({ model: 'scripted', messages, tools: [{ type: 'function', function: { name: 'multiply', parameters: { type: 'object' } } }] })
      return await (await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers: { 'content-type': 'application/json' }, body })).json() as Answer
    }
    const question = { role: 'user', content: 'What is 6 times 7?' }
    const first = await chat([question])
    const { program } = first.entracte
    const waiting = await entracte(['explain', program, '--url', url])
    assert.match(waiting.stdout, /what it waits for now\n {2}a tool: multiply \([\d.]+ m?s so far\), asked for by /)

    const message = first.choices[0]?.message
    await chat([question, message as object, { role: 'tool', tool_call_id: message?.tool_calls?.[0]?.id, content: '42' }])
    const { stdout } = await entracte(['explain', program, '--url', url, '--json'])
    const explained = JSON.parse(stdout) as { stage: string; wallUs: number; parts: Record<string, number>; calls: unknown[]; decisions: { waitUs: number | null }[] }
    assert.equal(explained.stage, 'completed')
    assert.equal(explained.calls.length, 2)
    assert.equal(Object.values(explained.parts).reduce((sum, us) => sum + us, 0), explained.wallUs)
    assert.ok((explained.parts['toolWait'] ?? 0) > 0)
    assert.ok((explained.parts['decode'] ?? 0) > 0)
    assert.equal(explained.decisions[0]?.waitUs, explained.parts['toolWait'])
  })

  test('is told apart from a second one on the same data, which is refused by name', async () => {
    const { code, stderr } = await entracte(['serve', '--config', config, '--data', data])
    assert.equal(code, 1)
    assert.match(stderr, new RegExp(`data directory ${data} is in use by process ${child.pid}`))
    assert.match(stderr, /\n {2}next: stop that process/)
  })

  test('says which port is taken', async () => {
    const { code, stderr } = await entracte(['serve', '--config', config, '--data', join(folder, 'other'), '--port', new URL(url).port])
    assert.equal(code, 1)
    assert.match(stderr, /EADDRINUSE.*\n {2}next: .*--port/)
  })

  test('stops at a signal, with code 0', async () => {
    child.kill('SIGTERM')
    const [code] = await once(child, 'exit') as [number | null]
    assert.equal(code, 0)
    assert.equal((await entracte(['programs', '--url', url])).code, 3)
  })
})
