/** The real engine process with the tiny model, served over TCP of this machine as if it were another. */
import { createServer } from 'node:net'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { EmbeddedEngine } from '../../src/engines/embedded.ts'
import { hostEngine, type EngineHost, type HostOptions } from '../../src/engines/engine-host.ts'
import { pause } from './listener.ts'
import { writeTinyGguf } from '../../src/models/tiny-gguf.ts'

export const SECRET = 'known on both sides'

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const address = server.address()
  const port = typeof address === 'object' ? address?.port ?? 0 : 0
  server.close()
  await once(server, 'close')
  return port
}

export interface Hosted extends EngineHost { readonly port: number; readonly said: string[] }

export async function hosted(dir: string, more: Partial<HostOptions> = {}): Promise<Hosted> {
  const modelPath = join(dir, 'tiny.gguf')
  writeTinyGguf(modelPath)
  const secretFile = join(dir, 'secret')
  writeFileSync(secretFile, `${SECRET}\n`)
  const port = await freePort()
  const said: string[] = []
  const host = hostEngine({
    modelPath, lanes: 4, laneTokens: 2_048, threads: 1, chunkTokens: 64, flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: join(dir, 'probes.json'),
    listen: { host: '127.0.0.1', port }, secretFile, tls: null, ...more,
  }, (line) => said.push(line))
  host.ended.catch((error: unknown) => said.push(String(error)))
  for (let tries = 0; tries < 1_500 && !said.some((line) => line.includes('listens on')); tries++) await pause(20)
  return { ...host, port, said }
}

export const remoteEngine = (port: number, more: { readonly secret?: string; readonly ca?: string; readonly leaseMs?: number } = {}): EmbeddedEngine => new EmbeddedEngine({
  id: 'far', models: ['tiny'],
  remote: { host: '127.0.0.1', port, secret: more.secret ?? SECRET, tls: more.ca === undefined ? null : { ca: more.ca } },
  limits: { leaseMs: more.leaseMs ?? 10_000, pauseMs: 50, pauseMsMax: 200, loopAfter: Infinity },
})
