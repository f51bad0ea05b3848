/**
 * A server that speaks what of the Hugging Face hub is used: the listing of a repository with its blobs, and a file
 * behind a redirect to a second server, with ranges. What it does wrong is told to it.
 */
import { createHash } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface Served {
  readonly path: string
  readonly range: string | null
  readonly authorization: string | null
}

interface Fault {
  /** In place of everything. */
  readonly status?: number
  readonly message?: string
  /** Of the next answers with content: each ends after so many bytes. */
  readonly cuts?: number[]
  readonly ignoresRanges?: boolean
  /** What the listing says instead of the truth. */
  readonly digest?: string | null
  readonly bytes?: number
}

const COMMIT = '0123456789abcdef0123456789abcdef01234567'

export class FakeHub {
  readonly files: Record<string, Buffer> = {}
  fault: Fault = {}
  asked: Served[] = []
  endpoint = ''
  #store = ''
  #servers: Server[] = []

  async open(): Promise<void> {
    const hub = await this.#listen((request, response) => this.#answer(request, response))
    // Another port is another origin: credentials must stay behind.
    const store = await this.#listen((request, response) => this.#content(request, response))
    this.endpoint = `http://127.0.0.1:${hub}`
    this.#store = `http://127.0.0.1:${store}`
  }

  close(): void {
    for (const server of this.#servers) {
      server.closeAllConnections()
      server.close()
    }
  }

  #listen(answer: (request: IncomingMessage, response: ServerResponse) => void): Promise<number> {
    const server = createServer((request, response) => {
      const { range = null, authorization = null } = request.headers
      this.asked.push({ path: request.url ?? '', range, authorization })
      answer(request, response)
    })
    this.#servers.push(server)
    return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)))
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const { status, message } = this.fault
    if (status !== undefined) {
      response.writeHead(status, message === undefined ? {} : { 'x-error-message': message }).end()
      return
    }
    if (request.url === '/api/models/owner/repo/revision/main?blobs=true') {
      response.setHeader('content-type', 'application/json').end(JSON.stringify(this.#listing()))
      return
    }
    const file = request.url?.split(`/owner/repo/resolve/${COMMIT}/`)[1]
    if (file !== undefined && this.files[file] !== undefined) {
      response.writeHead(302, { location: `${this.#store}/${file}` }).end()
      return
    }
    response.writeHead(404, { 'x-error-message': 'Repository not found' }).end()
  }

  #listing() {
    const siblings = Object.entries(this.files).map(([rfilename, content]) => {
      const sha256 = this.fault.digest !== undefined ? this.fault.digest : createHash('sha256').update(content).digest('hex')
      const size = this.fault.bytes ?? content.length
      return { rfilename, size, ...(sha256 === null ? {} : { lfs: { sha256, size, pointerSize: 134 } }) }
    })
    return { id: 'owner/repo', sha: COMMIT, siblings: [{ rfilename: 'README.md', size: 5 }, ...siblings] }
  }

  #content(request: IncomingMessage, response: ServerResponse): void {
    const content = this.files[(request.url ?? '').slice(1)] ?? Buffer.alloc(0)
    const from = this.fault.ignoresRanges === true ? 0 : Number(/bytes=(\d+)-/.exec(request.headers.range ?? '')?.[1] ?? 0)
    const rest = content.subarray(from)
    const cut = this.fault.cuts?.shift()
    response.writeHead(from > 0 ? 206 : 200, {
      'content-length': rest.length,
      ...(from > 0 ? { 'content-range': `bytes ${from}-${content.length - 1}/${content.length}` } : {}),
    })
    if (cut === undefined) response.end(rest)
    // What is still in the buffers when a socket is destroyed is lost, so it goes a while after they are empty.
    else response.write(rest.subarray(0, cut), () => setTimeout(() => response.destroy(), 100))
  }
}
