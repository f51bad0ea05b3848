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
    if (model !== undefined) return { url, model: model.id, client }
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
}
