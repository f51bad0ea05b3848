/**
 * Where an example finds a server: the one at BASE_URL, or one of its own before a scripted engine, on a free port, gone
 * when the example ends. `BASE_URL=http://127.0.0.1:7600 node dist/examples/01-hello.js` runs it on a real model.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import OpenAI from 'openai'
import { defaultConfig } from '../src/config.ts'
import { start } from '../src/main.ts'

export interface ExampleServer {
  readonly url: string
  readonly model: string
  readonly client: OpenAI
  /** To the program API; throws what it answers where it refuses. */
  readonly post: (path: string, body?: object) => Promise<{ readonly id: string }>
}

/** `script`: what the scripted engine answers, in order. */
export async function withServer(script: readonly object[], example: (server: ExampleServer) => Promise<void>): Promise<void> {
  const given = process.env['BASE_URL']
  if (given !== undefined) return example(await reach(given.replace(/\/(v1)?\/?$/, '')))
  const folder = mkdtempSync(join(tmpdir(), 'entracte-example-'))
  const server = await start(defaultConfig({
    listen: { port: 0 }, logLevel: 'error', dataDir: folder, imagesDir: join(folder, 'images'),
    engines: [{ id: 'script', kind: 'scripted', script }],
  }))
  try {
    await example(await reach(server.url))
  } finally {
    await server.close()
    rmSync(folder, { recursive: true, force: true })
  }
}

/** An engine joins a moment after the door opens. */
async function reach(url: string): Promise<ExampleServer> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: process.env['ENTRACTE_KEY'] ?? 'none' })
  for (;;) {
    const { data: [model] } = await client.models.list()
    if (model !== undefined) return { url, model: model.id, client, post: (path, body) => post(`${url}${path}`, body) }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}

async function post(url: string, body: object = {}): Promise<{ readonly id: string }> {
  const headers = { 'content-type': 'application/json', authorization: `Bearer ${process.env['ENTRACTE_KEY'] ?? 'none'}` }
  const reply = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
  if (!reply.ok) throw new Error(`${url}: ${await reply.text()}`)
  return await reply.json() as { id: string }
}
