/**
 * Owns the engine's process: loads the model, listens for one control plane, and ends when that is gone (its socket
 * closed, its lease ran out, or our parent is another). What is said on the socket is the loop's business.
 */
import { createHash } from 'node:crypto'
import { createReadStream, rmSync, writeSync } from 'node:fs'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import { EXIT_REFUSED } from '../protocol/engine.ts'
import { FrameError, FrameReader, encodeFrame } from '../protocol/frame.ts'
import { ImagePost } from './image-post.ts'
import { firstAdmitted, firstOnSocket, ListenError, secretIn } from './listener.ts'
import { calibrate } from './calibration.ts'
import { describe } from './describe.ts'
import { Llama, LlamaError } from './llama/llama.ts'
import { EngineLoop } from './loop.ts'
import type { EngineOptions } from './loop.ts'
import { publicPrefix } from './public-prefix.ts'
import { ProbeCache } from './probe-cache.ts'
import { lostTexts } from './round-trip.ts'
import { SettingsError, readSettings } from './settings.ts'
import type { Settings } from './settings.ts'
import { Speeds } from './speeds.ts'
import { TemplateError } from './template.ts'
import { weigh } from './weigh.ts'
import { templateOf } from './model-template.ts'

/** Nobody said hello within this time: nobody will. */
const HELLO_WITHIN_MS = 30_000
const WATCH_EVERY_MS = 250
/** A control plane that does not read is as good as gone; at so many bytes unsent the process ends. */
const UNSENT_BYTES_MAX = 256 * 1024 * 1024

/** Ends the process when whoever it works for is gone. */
class Watch {
  readonly #parent = process.ppid
  #lastMs = performance.now()
  /** None while the model loads, however long that takes. */
  #leaseMs = Infinity

  constructor(end: (why: string) => void) {
    let lookedMs = performance.now()
    setInterval(() => {
      const nowMs = performance.now()
      // Time in which we could not listen, being busy or asleep, does not count.
      this.#lastMs += Math.max(0, nowMs - lookedMs - 2 * WATCH_EVERY_MS)
      lookedMs = nowMs
      if (process.ppid !== this.#parent) end('its parent is gone')
      else if (nowMs - this.#lastMs > this.#leaseMs) end(`nobody spoke for ${this.#leaseMs} ms`)
    }, WATCH_EVERY_MS)
  }

  heard(): void {
    this.#lastMs = performance.now()
  }

  lease(leaseMs: number): void {
    this.#leaseMs = leaseMs
    this.heard()
  }
}

async function main(settings: Settings): Promise<void> {
  const watch = new Watch((why) => end(settings, why))
  const llama = Llama.load({ ...settings, batchTokens: settings.chunkTokens })
  lostTexts(llama)
  const modelDigest = settings.modelDigest ?? await digestOf(settings.modelPath)
  const cache = probeCache(settings, llama, modelDigest)
  const template = templateOf(llama)
  const options: Omit<EngineOptions, 'emit'> = {
    llama,
    modelDigest,
    template,
    chunkTokens: settings.chunkTokens,
    copiesMsMax: settings.copiesMsMax,
    publicPrefixes: settings.publicPrefixes.map((text) => publicPrefix(llama, template, text, llama.info.laneTokens)),
    calibration: await calibrate(llama),
    exact: cache?.read() ?? (settings.probe ? null : { answer: 'unknown', because: 'the probe is off' }),
    probed: (exact) => cache?.write(exact),
    nowUs: () => Math.round(performance.now() * 1_000),
  }
  const { socket, post } = await peerOf(settings, watch)
  const emit: EngineOptions['emit'] = post === null ? (event, bin) => send(settings, socket, encodeFrame(event, bin)) : (event, bin) => post.emit(event, bin)
  const loop = new EngineLoop({ ...options, emit })
  listen(settings, { socket, post }, loop, watch)
  await loop.run()
  socket.end(() => {
    leave(settings)
    process.exit(0)
  })
}

/** What an engine with these settings would serve, on stdout. */
async function say(settings: Settings): Promise<void> {
  const llama = Llama.load({ ...settings, batchTokens: settings.chunkTokens })
  const loses = lostTexts(llama)
  const speeds = new Speeds(await calibrate(llama)).snapshot()
  writeSync(process.stdout.fd, `${JSON.stringify(describe(llama, templateOf(llama), loses, speeds))}\n`)
  llama.dispose()
}

/** What these settings are worth, on stdout and in the file of answers. */
async function weighed(settings: Settings): Promise<void> {
  const llama = Llama.load({ ...settings, batchTokens: settings.chunkTokens })
  const modelDigest = settings.modelDigest ?? await digestOf(settings.modelPath)
  const cache = probeCache(settings, llama, modelDigest)
  const weight = await weigh(llama, settings.chunkTokens, cache?.read() ?? null)
  if (weight.exact.answer !== 'unknown') cache?.write(weight)
  writeSync(process.stdout.fd, `${JSON.stringify(weight)}\n`)
  llama.dispose()
}

function probeCache({ probeCachePath, chunkTokens, threads }: Settings, llama: Llama, modelDigest: string): ProbeCache | null {
  return probeCachePath === null ? null : new ProbeCache(probeCachePath, llama.info, modelDigest, chunkTokens, threads)
}

/** What is said to the control plane, and what it says; images go through a post where it is on another machine. */
async function peerOf(settings: Settings, watch: Watch): Promise<Peer> {
  if (settings.listen === null) {
    watch.lease(HELLO_WITHIN_MS)
    const socket = await firstOnSocket(settings.socketPath)
    return { socket, post: null }
  }
  const { secretFile, imagesDir, ...door } = settings.listen
  // Somebody may come, or nobody for days.
  const socket = await firstAdmitted({ ...door, secret: secretIn(secretFile) }, (port) => {
    writeSync(process.stdout.fd, `the engine listens on ${door.host}:${port}\n`)
  })
  watch.lease(HELLO_WITHIN_MS)
  const post = new ImagePost(imagesDir, {
    send: (message, bin) => send(settings, socket, encodeFrame(message, bin)),
    room: async () => { if (socket.writableNeedDrain) await once(socket, 'drain') },
  })
  return { socket, post }
}

interface Peer { readonly socket: Socket; readonly post: ImagePost | null }

function listen(settings: Settings, { socket, post }: Peer, loop: EngineLoop, watch: Watch): void {
  const reader = new FrameReader()
  socket.on('data', (chunk: Buffer) => {
    try {
      for (const { message, bin } of reader.push(chunk)) {
        watch.heard()
        const heard = post === null ? message : post.receive(message, bin)
        const request = heard === null ? null : loop.receive(heard, bin)
        if (request?.kind === 'hello') watch.lease(request.leaseMs)
      }
    } catch (error) {
      if (!(error instanceof FrameError)) throw error
      end(settings, `its control plane broke the framing: ${error.message}`)
    }
  })
  socket.on('error', (error) => end(settings, `its socket failed: ${error.message}`))
  socket.on('close', () => end(settings, 'its control plane is gone'))
  socket.resume()
}

function send(settings: Settings, socket: Socket, frame: Buffer): void {
  socket.write(frame)
  if (socket.writableLength > UNSENT_BYTES_MAX) end(settings, 'its control plane does not read')
}

/**
 * At once, even in the middle of a batch: what the lanes hold is lost with the process in any case. An orderly exit
 * would wait for the batch, which may take seconds.
 */
function end(settings: Settings, why: string): void {
  leave(settings)
  try {
    writeSync(process.stderr.fd, `the engine ends: ${why}\n`)
  } finally {
    process.kill(process.pid, 'SIGKILL')
  }
}

function leave(settings: Settings): void {
  if (settings.listen !== null) rmSync(settings.listen.imagesDir, { recursive: true, force: true })
  else if (process.platform !== 'win32') rmSync(settings.socketPath, { force: true })
}

async function digestOf(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk as Buffer)
  return hash.digest('hex')
}

try {
  const settings = readSettings(process.argv.slice(2))
  if (settings.describe) await say(settings)
  else if (settings.weigh) await weighed(settings)
  else await main(settings)
} catch (error) {
  const said = error instanceof SettingsError || error instanceof LlamaError || error instanceof TemplateError || error instanceof ListenError
  process.stderr.write(`engine: ${said ? error.message : error instanceof Error ? error.stack : String(error)}\n`)
  // Memory may come free; a model, a library or a setting stays what it is.
  const isLasting = said && !(error instanceof LlamaError && error.code === 'memory')
  process.exit(isLasting ? EXIT_REFUSED : 1)
}
