/**
 * Owns an engine as a machine apart: it obeys one link at a time (a reign and a number; older ones are refused), runs its
 * batches, keeps KV, copies images, reports now and then, and dies, hangs or slows down when told. How it is
 * spoken to is the wire's and the port's; what a batch is, is its shape's.
 */
import type { EngineId, MoveId } from '../core/ids.ts'
import type { Held } from '../core/input.ts'
import type { Us } from '../core/units.ts'
import type { EngineCommand, EngineSink, Measurement, MeasureRequest, StartCommand } from '../driver/ports.ts'
import { Attempt, type Prompt } from './attempt.ts'
import { Device } from './device.ts'
import type { Events } from './events.ts'
import type { Faults } from './faults.ts'
import { readImage, writeImage, type Images } from './images.ts'
import { measured, type Oracle } from './measure.ts'
import { batchNs, batchOf, stepsOf, type Member, type Shape } from './shape.ts'
import type { Texts } from './content.ts'
import { toolCallOf } from './tool.ts'
import { Transfers } from './transfers.ts'

/** Who an engine obeys, and how it answers. */
export interface Link {
  readonly reign: number
  readonly number: number
  say(subject: string, matters: boolean, say: (sink: EngineSink) => void): void
  /** `held`: what its device still has of an earlier link. */
  joined(held: readonly Held[]): void
  refused(why: string): void
  died(why: string): void
}

interface EngineWorld {
  readonly events: Events
  readonly faults: Faults
  readonly texts: Texts
  readonly images: Images
  readonly oracle: Oracle
  planted(command: EngineCommand): EngineCommand
  /** A command arrived that is obeyed. */
  told(engine: EngineId, command: EngineCommand): void
  /** A command that made no sense: a bug of whoever gave it. */
  breach(engine: EngineId, why: string): void
}

export class Engine {
  readonly id: EngineId
  readonly shape: Shape
  /** Commands of a link that is not obeyed any more. */
  refusals = 0
  tokensFed = 0
  busyUs: Us = 0
  readonly #world: EngineWorld
  readonly #device: Device
  readonly #transfers: Transfers
  readonly #attempts = new Map<string, Attempt>()
  readonly #moves = new Set<MoveId>()
  #link: Link | null = null
  #reign = 0
  #life = 0
  #isUp = true
  #hungUntilUs: Us = 0
  #slowUntilUs: Us = 0
  #slowness = 1
  #batching = false
  #lastWasPrefill = false
  #reporting = false
  #reports = 0
  /** What arrived while it hung, in order. */
  #unheard: (() => void)[] = []

  constructor(id: EngineId, shape: Shape, world: EngineWorld) {
    this.id = id
    this.shape = shape
    this.#world = world
    const { memory } = shape.capabilities
    if (memory === null) throw new Error(`${id} has no memory to simulate`)
    this.#device = new Device(memory)
    this.#transfers = new Transfers(world.events, shape.copyBytesPerUs)
  }

  /** Nothing of it is left on the device. */
  get isEmpty(): boolean {
    return this.#device.states.size === 0 && this.#attempts.size === 0 && this.#moves.size === 0
  }

  get holds(): string {
    return [...this.#device.states.keys(), ...this.#attempts.keys(), ...this.#moves].join(', ')
  }

  // ---------------------------------------------------------------- being spoken to

  hello(link: Link): void {
    this.#hear(() => {
      if (link.reign < this.#reign) return link.refused(`reign ${link.reign} is refused: ${this.id} obeys reign ${this.#reign}`)
      const held = this.#device.inventory()
      this.#leave()
      if (this.#link !== null && this.#reign < link.reign) this.#link.died(`reign ${link.reign} took ${this.id} over`)
      this.#link = link
      this.#reign = link.reign
      link.joined(held)
    })
  }

  command(link: Link, command: EngineCommand): void {
    this.#hear(() => {
      if (link === this.#link) this.#obey(this.#world.planted(command))
      else this.refusals += 1
    })
  }

  measure(request: MeasureRequest, answer: (measurement: Measurement) => void): void {
    this.#hear(() => answer(measured(this.#world.texts, this.#world.oracle, this.shape.capabilities.contextTokens, request)))
  }

  #hear(what: () => void): void {
    if (!this.#isUp) return
    if (this.#isHung()) this.#unheard.push(what)
    else what()
  }

  #obey(command: EngineCommand): void {
    this.#world.told(this.id, command)
    switch (command.kind) {
      case 'start': return this.#start(command)
      case 'order': return this.#order(command)
      case 'pause': return this.#pause(command)
      case 'cancel': return this.#cancel(command)
      case 'offload': return this.#offload(command)
      case 'onboard': return this.#onboard(command)
      case 'discard': return this.#breach(this.#device.discard(command.state))
    }
  }

  // ---------------------------------------------------------------- going wrong

  crash(downUs: Us): void {
    if (!this.#isUp) return
    const link = this.#link
    this.#wipe()
    this.#link = null
    this.#isUp = false
    link?.died(`${this.id} died`)
    this.#world.events.after(downUs, () => { this.#isUp = true })
  }

  hang(us: Us): void {
    this.#hungUntilUs = this.#world.events.nowUs + us
    this.#world.events.after(us, () => this.#revive())
  }

  slow(factor: number, us: Us): void {
    this.#slowness = factor
    this.#slowUntilUs = this.#world.events.nowUs + us
  }

  #isHung(): boolean {
    return this.#world.events.nowUs < this.#hungUntilUs
  }

  #revive(): void {
    if (this.#isHung()) return
    const unheard = this.#unheard
    this.#unheard = []
    for (const what of unheard) this.#hear(what)
    this.#kick()
  }

  /** A new life: the device is empty. */
  #wipe(): void {
    this.#leave()
    this.#device.states.clear()
  }

  /** What was begun says nothing any more. */
  #leave(): void {
    this.#life += 1
    this.#attempts.clear()
    this.#moves.clear()
    this.#transfers.clear()
    this.#batching = false
  }

  // ---------------------------------------------------------------- attempts

  #start(start: StartCommand): void {
    const running = this.#attempts.get(start.call)
    if (running !== undefined) return this.#breach(`${start.call} runs as attempt ${running.start.attempt} and was started as ${start.attempt}`)
    const full = this.#attempts.size >= this.shape.capabilities.runningMax
    const resident = full ? `more than ${this.shape.capabilities.runningMax} calls were started`
      : this.#device.start(start.state, start.call, start.keepTokens, start.grantGranules)
    if (typeof resident === 'string') {
      this.#breach(resident)
      return this.#say(start, (sink, from) => sink.input({ kind: 'attemptFailed', ...from, why: `contract breach: ${resident}`, retryable: false }))
    }
    const prompt = JSON.parse(Buffer.from(start.prepared).toString('utf8')) as Prompt
    const room = { granted: start.grantGranules * this.#device.memory.granule, context: this.shape.capabilities.contextTokens }
    const attempt = new Attempt(start, prompt, resident, room, this.#world.texts, this.#world.events.nowUs)
    if (start.replay === 'plain' && isFedAgain(start)) this.#world.oracle.plain(start.call)
    this.#attempts.set(start.call, attempt)
    this.#reportSoon()
    if (attempt.done) return this.#finish(attempt)
    this.#kick()
  }

  #order({ orders }: Extract<EngineCommand, { kind: 'order' }>): void {
    for (const { call, rank, grantGranules } of orders) {
      const attempt = this.#attempts.get(call)
      if (attempt === undefined) continue
      attempt.rank = rank
      const roomTokens = grantGranules * this.#device.memory.granule
      if (roomTokens === attempt.roomTokens) continue
      attempt.roomTokens = roomTokens
      this.#breach(this.#device.grant(attempt.start.state, grantGranules))
    }
    this.#kick()
  }

  #pause({ call, attempt: number }: Extract<EngineCommand, { kind: 'pause' }>): void {
    const attempt = this.#attempts.get(call)
    if (attempt?.start.attempt !== number) return
    attempt.pausing = true
    if (!this.#batching) this.#endPaused(attempt)
  }

  #endPaused(attempt: Attempt): void {
    this.#flush(attempt)
    const report = attempt.report()
    this.#drop(attempt, attempt.kv.tokens)
    this.#say(attempt.start, (sink, from) => sink.input({ kind: 'paused', ...from, report }))
  }

  #cancel({ call, attempt: number }: Extract<EngineCommand, { kind: 'cancel' }>): void {
    const attempt = this.#attempts.get(call)
    if (attempt?.start.attempt === number) this.#drop(attempt, attempt.start.baseTokens)
  }

  #finish(attempt: Attempt): void {
    this.#flush(attempt)
    const { start, finish, promptTokens } = attempt
    const record = Buffer.from(JSON.stringify(attempt.record()))
    const report = attempt.report()
    const outcome = { record, promptTokens, outputTokens: report.outputTokens, cachedTokens: Math.min(start.keepTokens, promptTokens) }
    const resume = !isFedAgain(start) ? 'none' : start.replay === 'exact' ? 'exact' : 'recomputed'
    const end = {
      finish, report, resume, parts: attempt.parts(this.#world.events.nowUs), spans: attempt.spans(), toolEffect: 'read',
      toolCalls: finish === 'tool_calls' ? [{ id: toolCallOf(start.call), name: attempt.tool }] : [],
    } as const
    this.#drop(attempt, attempt.kv.tokens)
    this.#device.mark(start.state, start.epoch)
    this.#say(start, (sink, from) => {
      sink.outcome(start.call, start.attempt, outcome)
      sink.input({ kind: 'finished', ...from, ...end })
    })
  }

  #drop(attempt: Attempt, keepTokens: number): void {
    this.#attempts.delete(attempt.start.call)
    this.#device.stop(attempt.start.state, keepTokens)
  }

  // ---------------------------------------------------------------- batches

  #kick(): void {
    if (this.#batching || !this.#isUp || this.#isHung()) return
    const members = batchOf(this.shape, [...this.#attempts.values()], this.#lastWasPrefill)
    if (members.length === 0) return
    const slowness = this.#world.events.nowUs < this.#slowUntilUs ? this.#slowness : 1
    const steps = stepsOf(this.shape, members, this.#attempts.size)
    const us = Math.ceil((batchNs(this.shape, members) * steps * slowness) / 1_000)
    const life = this.#life
    this.#batching = true
    this.#world.events.after(us, () => {
      if (life !== this.#life) return
      this.#batching = false
      this.#world.events.alone = true
      this.#batchDone(members, steps, us)
      this.#kick()
    })
  }

  #batchDone(members: readonly Member[], steps: number, us: Us): void {
    this.#lastWasPrefill = members[0]?.need.kind === 'prefill'
    this.busyUs += us
    charge(members, us)
    for (const { attempt, need, tokens } of members) {
      if (this.#attempts.get(attempt.start.call) !== attempt) continue
      this.tokensFed += tokens * steps
      for (let step = 0; step < steps; step += 1) attempt.feed(need, tokens)
      if (attempt.done) this.#finish(attempt)
    }
    for (const attempt of [...this.#attempts.values()]) if (attempt.pausing) this.#endPaused(attempt)
  }

  /** As long as anything runs, also where nothing goes on: a call without room is given more by who knows of it. */
  #reportSoon(): void {
    if (this.#reporting) return
    this.#reporting = true
    this.#world.events.after(this.shape.reportUs, () => {
      this.#reporting = false
      this.#world.events.alone = true
      if (this.#attempts.size === 0) return
      if (!this.#isHung()) this.#progress()
      this.#reportSoon()
    })
  }

  #progress(): void {
    const { id } = this
    const link = this.#link
    if (link === null) return
    for (const attempt of this.#attempts.values()) this.#flush(attempt)
    const calls = [...this.#attempts.values()].map((attempt) => ({ ...ofAttempt(attempt.start), report: attempt.report() }))
    link.say('progress', false, (sink) => sink.input({ kind: 'progress', engine: id, reign: link.reign, speeds: (this.#reports += 1) % SPEEDS_EVERY === 0 ? this.shape.speeds : null, calls }))
  }

  /** What it said since the last time, as one chunk. */
  #flush(attempt: Attempt): void {
    const index = attempt.shown
    const tokens = attempt.outputs.slice(index)
    if (tokens.length === 0) return
    attempt.shown = attempt.outputs.length
    const { call, attempt: number } = attempt.start
    const parts = [{ kind: 'text', text: this.#world.texts.shownAs(tokens) }] as const
    this.#link?.say(call, true, (sink) => sink.chunk({ call, attempt: number, index, tokens, parts }))
  }

  #say(start: StartCommand, say: (sink: EngineSink, from: { engine: EngineId; reign: number; call: StartCommand['call']; attempt: number; run: number; epoch: number }) => void): void {
    const link = this.#link
    if (link === null) return
    const from = { engine: this.id, reign: link.reign, ...ofAttempt(start) }
    link.say(start.call, true, (sink) => say(sink, from))
  }

  // ---------------------------------------------------------------- moves

  #offload({ move, state, path, spans, identity }: Extract<EngineCommand, { kind: 'offload' }>): void {
    const tokens = spans.reduce((sum, span) => sum + span.tokens, 0)
    const resident = this.#device.copyOut(state, tokens)
    if (typeof resident === 'string') return this.#moveBreach(move, resident)
    const bytes = tokens * this.shape.capabilities.kvBytesPerToken + 512
    this.#copy(move, bytes, () => {
      resident.moving = false
      return writeImage(this.#world, path, { key: this.shape.capabilities.imageKey ?? '', identity, kv: resident.kv.copy(tokens), bytes })
    })
  }

  #onboard({ move, state, path, digest, identity }: Extract<EngineCommand, { kind: 'onboard' }>): void {
    const image = readImage(this.#world, path, { key: this.shape.capabilities.imageKey ?? '', identity, digest })
    if (typeof image === 'string') return this.#moveFailed(move, image, true)
    const breach = this.#device.copyIn(state, image.kv.copy(image.kv.tokens))
    if (breach !== null) return this.#moveBreach(move, breach)
    this.#copy(move, image.bytes, () => {
      const resident = this.#device.states.get(state)
      if (resident !== undefined) resident.moving = false
      return { bytes: image.bytes, digest }
    })
  }

  #copy(move: MoveId, bytes: number, done: () => { bytes: number; digest: string } | string): void {
    const life = this.#life
    const begunUs = this.#world.events.nowUs
    this.#moves.add(move)
    this.#transfers.begin(bytes, () => {
      if (life !== this.#life || !this.#moves.delete(move)) return
      const copied = done()
      if (typeof copied === 'string') return this.#moveFailed(move, copied, false)
      const copyUs = this.#world.events.nowUs - begunUs
      this.#sayMove(move, (sink, from) => sink.input({ kind: 'moveDone', ...from, move, ...copied, copyUs }))
    })
  }

  #moveFailed(move: MoveId, why: string, sourceLost: boolean): void {
    this.#sayMove(move, (sink, from) => sink.input({ kind: 'moveFailed', ...from, move, why, sourceLost }))
  }

  #moveBreach(move: MoveId, breach: string): void {
    this.#breach(breach)
    this.#moveFailed(move, `contract breach: ${breach}`, false)
  }

  #sayMove(move: MoveId, say: (sink: EngineSink, from: { engine: EngineId; reign: number }) => void): void {
    const link = this.#link
    const from = { engine: this.id, reign: link?.reign ?? 0 }
    link?.say(move, true, (sink) => say(sink, from))
  }

  #breach(why: string | null): void {
    if (why !== null) this.#world.breach(this.id, why)
  }
}

/** Reports of progress from one that says how fast it is to the next. */
const SPEEDS_EVERY = 50

/** What was fed before is fed once more, or what was shown. */
const isFedAgain = ({ recomputeTokens, forced }: StartCommand): boolean => recomputeTokens > 0 || forced.length > 0

const ofAttempt = ({ call, attempt, run, epoch }: StartCommand): { call: StartCommand['call']; attempt: number; run: number; epoch: number } => ({ call, attempt, run, epoch })

/** A batch's time, divided over its members by what each costs; they sum to it to the microsecond. */
function charge(members: readonly Member[], us: Us): void {
  const all = members.reduce((sum, { costNs }) => sum + costNs, 0)
  let left = us
  members.forEach(({ attempt, need, costNs }, at) => {
    const share = at === members.length - 1 ? left : Math.min(left, Math.floor((us * costNs) / all))
    left -= share
    const service = need.again ? attempt.service.recomputed : attempt.service.useful
    service.residentUs += us
    service.workUs += share
    attempt.spentUs[need.again ? 'recompute' : need.kind] += us
  })
}
