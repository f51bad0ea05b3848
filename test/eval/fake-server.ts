/** An OpenAI-compatible server in a few lines: calls the tool it is told to, answers else, and keeps what it was sent. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Seen {
  readonly method: string
  readonly path: string
  readonly headers: IncomingMessage['headers']
  readonly body: any
}

export interface Fake {
  readonly url: string
  readonly seen: Seen[]
  close(): Promise<void>
}

export interface FakeOptions {
  /** Answers instead, where it returns true. */
  readonly instead?: (seen: Seen, response: ServerResponse) => boolean
  readonly exact?: () => string
}

export async function fakeServer(options: FakeOptions = {}): Promise<Fake> {
  const seen: Seen[] = []
  const clock = { nowUs: 1_000_000 }
  const facts = new Map<string, object[]>()
  const note = (program: string, fact: object): void => {
    clock.nowUs += 1_000
    facts.set(program, [...facts.get(program) ?? [], { seq: clock.nowUs, atUs: clock.nowUs, version: 1, fact }])
  }
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (bytes) => { text += bytes })
    request.on('end', () => {
      const path = request.url ?? ''
      const one = { method: request.method ?? '', path, headers: request.headers, body: text === '' ? null : JSON.parse(text) }
      seen.push(one)
      if (options.instead?.(one, response) === true) return
      if (path === '/v1/models') return json(response, 200, { object: 'list', data: [{ id: 'fake', entracte: { engines: [{ exact: { answer: options.exact?.() ?? 'yes' } }] } }] })
      if (path === '/v1/programs') {
        note(one.body.id, { kind: 'program.started', program: `local/${one.body.id}`, tenant: 'local', session: null, declared: true, agent: one.body.agent, identity: { source: 'explicit', confidence: 100 }, priorityClass: 'default', deadlineUs: null, parent: null, steps: null })
        return json(response, 201, { id: one.body.id })
      }
      const factsOf = /^\/v1\/programs\/([^/]+)\/facts/.exec(path)?.[1]
      if (factsOf !== undefined) return json(response, 200, { object: 'list', data: facts.get(decodeURIComponent(factsOf)) ?? [] })
      if (path === '/v1/chat/completions') return answer(one, response, seen.length, note)
      return json(response, 200, {})
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    close: () => new Promise((resolve) => { server.close(() => resolve()); server.closeAllConnections() }),
  }
}

function answer(one: Seen, response: ServerResponse, serial: number, note: (program: string, fact: object) => void): void {
  const tool = one.body.tool_choice?.function?.name as string | undefined
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  response.write(': queued\n\n')
  send(response, { choices: [{ delta: { role: 'assistant', content: '' }, finish_reason: null }] })
  if (tool === undefined) {
    send(response, { choices: [{ delta: { content: 'All ' }, finish_reason: null }] })
    send(response, { choices: [{ delta: { content: 'done.' }, finish_reason: null }] })
  } else {
    const argument = Object.keys(one.body.tools.find((each: any) => each.function.name === tool).function.parameters.properties)[0]
    const whole = JSON.stringify({ [argument ?? '']: '6*7' })
    send(response, { choices: [{ delta: { tool_calls: [{ index: 0, id: `call_${serial}_0`, type: 'function', function: { name: tool, arguments: whole.slice(0, 5) } }] }, finish_reason: null }] })
    send(response, { choices: [{ delta: { tool_calls: [{ index: 0, function: { arguments: whole.slice(5) } }] }, finish_reason: null }] })
  }
  send(response, { choices: [{ delta: {}, finish_reason: tool === undefined ? 'stop' : 'tool_calls' }], entracte: { call: `c${serial}` } })
  send(response, { choices: [], usage: { prompt_tokens: 100, completion_tokens: 9, prompt_tokens_details: { cached_tokens: 60 } } })
  response.end('data: [DONE]\n\n')
  if (one.headers['x-program-final'] === 'true') note(String(one.headers['x-program-id']), { kind: 'program.completed', program: `local/${one.headers['x-program-id']}`, provisional: false })
}

/** Cut in the middle, as networks do. */
function send(response: ServerResponse, chunk: object): void {
  const text = `data: ${JSON.stringify(chunk)}\n\n`
  response.write(text.slice(0, 11))
  response.write(text.slice(11))
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' })
  response.end(JSON.stringify(body))
}
