/**
 * A child process that speaks the engine protocol and computes nothing: a call's tokens are 1, 2, 3, ... Its faults are
 * told by the prompt's first word, or by `--model` for what goes wrong before any call. Run by tests as the worker.
 *
 *   die        ends in the middle of the stream, with last words      garbage   sends what is no frame
 *   hang       says nothing more, and keeps its socket                odd       sends an event with a wrong field
 *   half       sends half a frame and dies                            gap       skips a token's index
 *   foreign    ends the attempt in another epoch                      stray     answers for calls nobody asked for
 *   refuse     refuses the start, as an engine of a later reign does  slow      a token each 20 ms, for ever
 *   endless    is in a batch from then on, and answers all else       grows     takes a gibibyte
 */
import { rmSync, writeFileSync } from 'node:fs'
import { createServer, type Socket } from 'node:net'
import { parseArgs } from 'node:util'
import type { EngineEvent, EngineRequest, WireEngine, WireReport } from '../../src/protocol/engine.ts'
import { encodeFrame, FrameReader } from '../../src/protocol/frame.ts'

const TEXT = { type: 'string' } as const
const { values } = parseArgs({ strict: false, options: { 'model': TEXT, 'socket': TEXT, 'probe-cache': TEXT } })
const model = String(values.model)
const socketPath = String(values.socket)
const countFile = values['probe-cache'] === undefined ? null : String(values['probe-cache'])

/** Every start is noted, so that a test sees who overlapped with whom. */
function note(what: string): void {
  if (countFile !== null) writeFileSync(countFile, `${what} ${process.pid}\n`, { flag: 'a' })
}

const engine = (exact: 'unknown' | 'yes'): WireEngine => ({
  library: 'fake', gpu: null, fallback: null, cpuKernel: 'none', modelDigest: 'd', lanes: 4, laneTokens: 1_024, kvBytesPerToken: 8, contextTokens: 1_024, imageKey: 'fake',
  can: { trim: true, copy: true, image: true },
  exact: { answer: exact, because: 'it is fake' },
  speeds: { prefillNsPerToken: 1, decodeBaseNs: 1, decodeRowNs: 1, copyOutNsPerToken: 1, copyInNsPerToken: 1 },
})

const report = (outputTokens: number): WireReport => ({
  usefulResidentUs: 10 * outputTokens, usefulWorkUs: 10 * outputTokens, recomputedResidentUs: 0, recomputedWorkUs: 0,
  tailPrefilled: 3, tailDecoded: Math.max(0, outputTokens - 1), outputTokens, recomputedTokens: 0, computedTokens: 3, reusedTokens: 0,
})

note('begins')
if (model === 'unloadable') {
  process.stderr.write('first word\nthe model cannot be read\n')
  process.exit(3)
}
if (model === 'refused') {
  process.stderr.write('engine: the model is none\n')
  process.exit(78)
}
if (model === 'mute') setInterval(() => undefined, 1_000)
else listen()

function listen(): void {
  createServer((socket) => {
    const reader = new FrameReader()
    const worker = new Worker(socket)
    socket.on('error', () => process.exit(0))
    socket.on('data', (bytes: Buffer) => {
      for (const { message, bin } of reader.push(bytes)) worker.hear(message as EngineRequest, bin)
    })
    socket.on('close', () => {
      if (model === 'clinging' || worker.hung) return
      end(0)
    })
  }).listen(socketPath)
}

function end(code: number): never {
  note('ends')
  rmSync(socketPath, { force: true })
  process.exit(code)
}

class Worker {
  hung = false
  #batchSinceMs: number | null = null
  #memoryBytes = 1 << 20
  #inMidFrame = false
  readonly #socket: Socket
  readonly #running = new Map<string, NodeJS.Timeout>()

  constructor(socket: Socket) { this.#socket = socket }

  hear(request: EngineRequest, bin: readonly Uint8Array[]): void {
    if (this.hung) return
    switch (request.kind) {
      case 'hello': return this.#hello(request)
      case 'ping': {
        if (this.#inMidFrame) return
        const batchMs = this.#batchSinceMs === null ? 0 : Math.round(performance.now() - this.#batchSinceMs)
        return this.#say({ kind: 'alive', batchMs, memoryBytes: this.#memoryBytes })
      }
      case 'measure': return this.#measure(request, bin)
      case 'start': return this.#start(request)
      case 'cancel':
      case 'pause': {
        clearInterval(this.#running.get(request.call))
        this.#running.delete(request.call)
        if (request.kind === 'pause') this.#say({ kind: 'paused', call: request.call, attempt: request.attempt, epoch: 0, report: report(2) })
        return
      }
      case 'offload':
        writeFileSync(request.path, 'image')
        return this.#say({ kind: 'moved', move: request.move, bytes: 5, digest: 'x', copyUs: 1 })
      case 'stop': return end(0)
      default:
    }
  }

  #hello({ protocol, reign }: Extract<EngineRequest, { kind: 'hello' }>): void {
    if (model === 'silent') return
    if (model === 'later reign') return this.#say({ kind: 'refused', what: 'hello', why: `reign ${reign} is over: 99 was seen` })
    this.#say({ kind: 'welcome', protocol: model === 'another protocol' ? protocol + 1 : protocol, engine: engine('unknown') })
    if (model === 'probing') setTimeout(() => this.#say({ kind: 'engine', engine: engine('yes') }), 30)
  }

  #measure({ call, body, records }: Extract<EngineRequest, { kind: 'measure' }>, bin: readonly Uint8Array[]): void {
    if (body === 'hang') {
      this.hung = true
      return
    }
    if (body === 'unmeasurable') return this.#say({ kind: 'unmeasurable', call, code: 'context_too_long', why: '9 tokens and 4' })
    const record = body === 'foreign record' ? 'nobody' : records[0]
    const matched = record === undefined ? null : { record, tokens: bin[0]?.length ?? 1 }
    this.#say({ kind: 'measured', call, promptTokens: 3, matched, renderingWon: null }, [Buffer.from(`prepared ${body}`)])
  }

  #start(start: Extract<EngineRequest, { kind: 'start' }>): void {
    const { call, attempt, epoch, body } = start
    const fault = body.split(' ')[0] ?? ''
    if (fault === 'refuse') return this.#say({ kind: 'refused', what: 'start', why: 'reign 1 is over: 99 was seen' })
    if (fault === 'stray') return this.#say({ kind: 'unmeasurable', call: 'nobody', code: 'internal', why: 'nobody asked' })
    let index = start.forced.length
    const timer = setInterval(() => {
      if (this.hung) return
      if (index >= 3 && fault !== 'slow') this.#fault(fault, start, timer, index)
      else {
        this.#say({ kind: 'tokens', call, attempt, index, tokens: [index + 1], parts: [{ kind: 'text', text: `${index + 1} ` }] })
        index += 1
        this.#say({ kind: 'progress', speeds: null, calls: [{ call, attempt, epoch, report: report(index) }] })
      }
    }, fault === 'slow' ? 20 : 5)
    this.#running.set(call, timer)
  }

  #fault(fault: string, { call, attempt, epoch }: Extract<EngineRequest, { kind: 'start' }>, timer: NodeJS.Timeout, index: number): void {
    clearInterval(timer)
    switch (fault) {
      case 'die':
        process.stderr.write('out of everything\n')
        return end(9)
      case 'kill': return void process.kill(process.pid, 'SIGKILL')
      case 'hang':
        this.hung = true
        return
      case 'endless':
        this.#batchSinceMs = performance.now()
        return
      case 'grows':
        this.#memoryBytes = 1 << 30
        return
      case 'garbage': return void this.#socket.write(Buffer.from('no frame at all, and long enough to be read as one'))
      case 'half':
        this.#socket.write(encodeFrame({ kind: 'failed', call, attempt, epoch, why: 'half', retryable: true }).subarray(0, 20))
        return end(0)
      case 'odd': return void this.#socket.write(encodeFrame({ kind: 'failed', call, attempt, epoch, why: 7, retryable: true }))
      case 'gap': return this.#say({ kind: 'tokens', call, attempt, index: index + 1, tokens: [9], parts: [] })
      case 'foreign': return this.#say({ kind: 'failed', call, attempt, epoch: epoch + 1, why: 'w', retryable: true })
      case 'pieces': return this.#inPieces(call, attempt, epoch, index)
      default: return this.#finish(call, attempt, epoch, index)
    }
  }

  /** The same answer, a few bytes at a time. */
  #inPieces(call: string, attempt: number, epoch: number, index: number): void {
    const pieces = this.#finishFrame(call, attempt, epoch, index)
    this.#inMidFrame = true
    for (let at = 0; at < pieces.length; at += 7) setTimeout(() => this.#socket.write(pieces.subarray(at, at + 7)), at / 7)
  }

  #finish(call: string, attempt: number, epoch: number, index: number): void {
    this.#socket.write(this.#finishFrame(call, attempt, epoch, index))
  }

  #finishFrame(call: string, attempt: number, epoch: number, outputTokens: number): Buffer {
    return encodeFrame({
      kind: 'finished', call, attempt, epoch, finish: 'tool_calls', report: report(outputTokens),
      parts: { waitUs: 0, recomputeUs: 0, prefillUs: 1, decodeUs: 2 }, spans: [{ tokens: 3, origin: 'prefilled', digest: 'd' }],
      toolCalls: [{ name: 'search' }, { name: 'add' }], resume: 'none', promptTokens: 3, outputTokens, cachedTokens: 0,
    } satisfies EngineEvent, [Buffer.from('record')])
  }

  #say(event: EngineEvent, bin: readonly Uint8Array[] = []): void {
    this.#socket.write(encodeFrame(event, bin))
  }
}
