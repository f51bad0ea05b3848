/** An OpenAI-compatible server for tests: speaks as it is told, remembers what it was asked, sees who hangs up. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Asked {
  readonly body: Record<string, unknown>
  readonly authorization: string | undefined
  /** Set once the client was gone before the end. */
  hungUpMs: number | null
}

export type Play = (asked: Asked, reply: Reply, attempt: number) => Promise<void> | void

export class FakeUpstream {
  readonly asked: Asked[] = []
  modelsStatus = 200
  play: Play
  #port = 0
  #server = this.#serve()

  constructor(play: Play) { this.play = play }

  get baseUrl(): string { return `http://127.0.0.1:${this.#port}/v1` }

  async listen(port = 0): Promise<this> {
    await new Promise<void>((resolve) => { this.#server.listen(port, '127.0.0.1', resolve) })
    this.#port = (this.#server.address() as AddressInfo).port
    return this
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => { this.#server.close(resolve) })
  }

  /** Comes back on the port it had. */
  async listenAgain(): Promise<void> {
    this.#server = this.#serve()
    await this.listen(this.#port)
  }

  #serve() {
    return createServer((request, response) => { void this.#answer(request, response) })
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    if (request.url === '/v1/models') {
      response.writeHead(this.modelsStatus, { 'content-type': 'application/json' }).end('{"data":[]}')
      return
    }
    let text = ''
    for await (const piece of request) text += String(piece)
    const asked: Asked = { body: JSON.parse(text) as Record<string, unknown>, authorization: request.headers.authorization, hungUpMs: null }
    response.on('close', () => { if (!response.writableEnded) asked.hungUpMs = performance.now() })
    this.asked.push(asked)
    await this.play(asked, new Reply(response), this.asked.length)
  }
}

export class Reply {
  readonly raw: ServerResponse

  constructor(raw: ServerResponse) { this.raw = raw }

  stream(): this {
    this.raw.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders()
    return this
  }

  chunk(delta: object, finish: string | null = null): this {
    return this.event({ object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason: finish }], usage: null })
  }

  event(data: unknown): this {
    this.raw.write(`data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`)
    return this
  }

  usage(prompt: number, completion: number, cached = 0): this {
    return this.event({ choices: [], usage: { prompt_tokens: prompt, completion_tokens: completion, prompt_tokens_details: { cached_tokens: cached } } })
  }

  done(): void {
    this.raw.end('data: [DONE]\n\n')
  }

  error(status: number, body: unknown, headers: Record<string, string> = {}): void {
    this.raw.writeHead(status, { 'content-type': 'application/json', ...headers }).end(typeof body === 'string' ? body : JSON.stringify(body))
  }

  /** The connection breaks without a word. */
  break(): void {
    this.raw.socket?.destroy()
  }
}
