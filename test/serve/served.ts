/** A real server with the tiny model on a free port, in this process or in one of its own, for the tests of the whole. */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after } from 'node:test'
import { fileURLToPath } from 'node:url'
import { defaultConfig } from '../../src/config.ts'
import { start, type Server } from '../../src/main.ts'

const open = new Set<() => Promise<void> | void>()
after(async () => { for (const close of [...open].reverse()) await close() })

export const MODEL = 'entracte-tiny'
const ENGINE = { id: 'local', kind: 'embedded', model: 'tiny', lanes: 2, laneTokens: 2_048, threads: 1 }

export function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'entracte-test-'))
  open.add(() => rmSync(path, { recursive: true, force: true }))
  return path
}

export async function served(core: Record<string, unknown> = {}, engine: Record<string, unknown> = {}, dataDir = folder()): Promise<Server> {
  const config = defaultConfig({ dataDir, imagesDir: join(dataDir, 'images'), listen: { port: 0 }, logLevel: 'silent', engines: ['kind' in engine ? engine : { ...ENGINE, ...engine }], core })
  const server = await start(config)
  open.add(() => server.close())
  await ready(server.url)
  return server
}

async function ready(url: string, exact = false): Promise<void> {
  await until(async () => {
    const answer = await fetch(`${url}/v1/models`).catch(() => null)
    if (answer === null) return false
    const { data } = await answer.json() as { data: { entracte: { engines: { exact: { answer: string } }[] } }[] }
    const engine = data[0]?.entracte.engines[0]
    return engine !== undefined && (!exact || engine.exact.answer !== 'unknown')
  }, 60_000)
}

/** Until the probe has answered too. */
export const proven = (server: { url: string }): Promise<void> => ready(server.url, true)

export async function until(holds: () => boolean | Promise<boolean>, ms = 10_000): Promise<void> {
  const by = Date.now() + ms
  while (!await holds()) {
    if (Date.now() > by) throw new Error(`not within ${ms} ms: ${holds.toString()}`)
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
}

export interface Process { readonly child: ChildProcess; readonly url: string; readonly output: () => string; kill(signal: NodeJS.Signals): Promise<void> }

/** `entracte serve` as a process of its own. Rejects with what it said where it ends before it serves. */
export async function serveProcess(dataDir: string): Promise<Process> {
  const file = join(dataDir, 'serve.yaml')
  writeFileSync(file, JSON.stringify({ dataDir, imagesDir: join(dataDir, 'images'), listen: { port: 0 }, engines: [ENGINE] }))
  const main = fileURLToPath(new URL('../../src/cli/main.js', import.meta.url))
  const child = spawn(process.execPath, [main, 'serve', '--config', file], { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (chunk: Buffer) => { said += chunk.toString() })
  const ended = new Promise<void>((resolve) => { child.on('exit', () => resolve()) })
  const kill = async (signal: NodeJS.Signals): Promise<void> => { child.kill(signal); await ended }
  open.add(() => kill('SIGKILL'))
  const url = (): string | null => /serves (http:\/\/[^\s/]+)\/v1/.exec(said)?.[1] ?? null
  await until(() => url() !== null || child.exitCode !== null, 60_000)
  const found = url()
  if (found === null) throw new Error(said)
  await ready(found)
  return { child, url: found, output: () => said, kill }
}

export interface Chat { readonly messages: readonly object[]; readonly [more: string]: unknown }

export function post(url: string, chat: Chat, headers: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
  return fetch(`${url}/v1/chat/completions`, {
    method: 'POST', headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ model: MODEL, temperature: 0, ...chat }), ...(signal === undefined ? {} : { signal }),
  })
}

export interface Completion { choices: { message: { content: string | null; tool_calls?: { id: string; type: 'function'; function: { name: string; arguments: string } }[] }; finish_reason: string }[]; usage: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details: { cached_tokens: number } }; entracte: { call: string; program: string; resume: string } }

export async function completion(url: string, chat: Chat, headers: Record<string, string> = {}): Promise<Completion> {
  const answer = await post(url, chat, headers)
  const body = await answer.json() as Completion & { error?: { message: string } }
  if (!answer.ok) throw new Error(body.error?.message ?? `status ${answer.status}`)
  return body
}
