/** Owns the talk of the verbs with a running server over its HTTP API. What comes back is checked for what is read of it. */
import type { Logged } from '../core/fact.ts'
import type { EngineView } from '../protocol/admin.ts'
import type { ProgramDetail, ProgramView } from '../protocol/program.ts'
import { CliFailure, EXIT } from './failure.ts'

export interface ServerOptions {
  readonly url: string
  readonly key?: string
}

export const DEFAULT_URL = 'http://127.0.0.1:7600'
const ANSWER_MS_MAX = 10_000
/** The most a server gives; of a longer history it gives the newest. */
const FACTS_MAX = 10_000
/** Programs of one page; the most a server gives. */
const PAGE = 200
/** Pages of a list that are read; a server keeps fewer programs than they hold. */
const PAGES_MAX = 1_000

export class ServerClient {
  readonly #url: string
  readonly #key: string | undefined

  constructor({ url, key }: ServerOptions) {
    if (!URL.canParse(url)) throw new CliFailure(EXIT.usage, `--url ${url} is not a URL`, null, `for example --url ${DEFAULT_URL}`)
    this.#url = url.replace(/\/+$/, '').replace(/\/v1$/, '')
    this.#key = key ?? process.env['ENTRACTE_KEY']
  }

  async programs(max: number): Promise<readonly ProgramView[]> {
    const found: ProgramView[] = []
    let after: string | null = null
    for (let page = 0; page < PAGES_MAX && found.length < max; page++) {
      const body = await this.#get(`/v1/programs?limit=${Math.min(max, PAGE)}${after === null ? '' : `&after=${encodeURIComponent(after)}`}`)
      found.push(...listOf(body) as ProgramView[])
      after = 'next' in body && typeof body.next === 'string' ? body.next : null
      if (after === null) break
    }
    return found.slice(0, max)
  }

  program = async (id: string): Promise<ProgramDetail> => await this.#get(`/v1/programs/${encodeURIComponent(id)}`) as ProgramDetail

  async facts(id: string): Promise<readonly Logged[]> {
    return listOf(await this.#get(`/v1/programs/${encodeURIComponent(id)}/facts?max=${FACTS_MAX}`)) as Logged[]
  }

  async engines(): Promise<readonly EngineView[]> {
    return listOf(await this.#get('/v1/admin/engines')) as EngineView[]
  }

  async drain(engine: string, withinSeconds: number): Promise<void> {
    await this.#post(`/v1/admin/engines/${encodeURIComponent(engine)}/drain`, { withinSeconds })
  }

  async undrain(engine: string): Promise<void> {
    await this.#post(`/v1/admin/engines/${encodeURIComponent(engine)}/undrain`, {})
  }

  #get(path: string): Promise<object> {
    return this.#ask(path, {})
  }

  #post(path: string, body: object): Promise<object> {
    return this.#ask(path, { method: 'POST', body: JSON.stringify(body) })
  }

  async #ask(path: string, { method = 'GET', body: sent = null }: { readonly method?: string; readonly body?: string | null }): Promise<object> {
    const headers: Record<string, string> = sent === null ? {} : { 'content-type': 'application/json' }
    if (this.#key !== undefined) headers['authorization'] = `Bearer ${this.#key}`
    let response: Response
    try {
      response = await fetch(this.#url + path, { method, headers, body: sent, signal: AbortSignal.timeout(ANSWER_MS_MAX) })
    } catch (error) {
      throw new CliFailure(EXIT.unreachable, `no server answers at ${this.#url}`, reasonOf(error),
        'start one with "entracte serve", or say where it is with --url.')
    }
    const body = await bodyOf(response)
    if (!response.ok) throw refused(response.status, body, this.#key !== undefined)
    if (typeof body !== 'object' || body === null) {
      throw new CliFailure(EXIT.unreachable, `what answers at ${this.#url} is not Entracte`, `${method} ${path} gave no JSON object`, 'look at --url.')
    }
    return body
  }
}

async function bodyOf(response: Response): Promise<unknown> {
  const text = await response.text()
  try {
    return JSON.parse(text) as unknown
  } catch (error) {
    return error instanceof SyntaxError ? null : Promise.reject(error)
  }
}

function listOf(body: object): readonly unknown[] {
  if ('data' in body && Array.isArray(body.data)) return body.data as readonly unknown[]
  throw new CliFailure(EXIT.failed, 'the server gave no list', 'its answer has no "data"', 'are this command and the server of the same version?')
}

function refused(status: number, body: unknown, hasKey: boolean): CliFailure {
  const error = typeof body === 'object' && body !== null && 'error' in body ? body.error : null
  const said = typeof error === 'object' && error !== null && 'message' in error ? String(error.message) : `the server answered ${status}`
  if (status === 401) return new CliFailure(EXIT.failed, said, null, `give ${hasKey ? 'another' : 'a'} key with --key, or in ENTRACTE_KEY.`)
  return new CliFailure(EXIT.failed, said, null, status === 404 ? '"entracte programs" lists what this key has.' : null)
}

/** `fetch` hides the reason in the cause. */
function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error)
  return error.cause instanceof Error ? error.cause.message || ('code' in error.cause ? String(error.cause.code) : error.message) : error.message
}
