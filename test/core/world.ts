/**
 * A small world around the core, for tests: virtual time, seeded chance, engines that obey commands and answer late, agents
 * that call, wait for tools, hang up, cancel and come back. Every step is followed by the invariants; the log is kept, so
 * that it can be replayed at any point.
 */
import { createHash } from 'node:crypto'
import { apply, emptyCore } from '../../src/core/apply.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import type { Logged } from '../../src/core/fact.ts'
import { bodyId, callId, engineId, moveId, tenantId, type CallId, type EngineId, type TenantId } from '../../src/core/ids.ts'
import type { Claims, Held, Input, Submit } from '../../src/core/input.ts'
import { checkInvariants } from '../../src/core/invariants.ts'
import { checkHistory, noHistory, type History } from '../../src/core/invariants/history.ts'
import { nothingSeen } from '../../src/core/invariants/law.ts'
import { checkNobodyIsStuck } from '../../src/core/invariants/waiting.ts'
import { step } from '../../src/core/step.ts'
import { emptyLedger, type Capabilities, type CoreState, type EngineSpeeds } from '../../src/core/state.ts'

export function random(seed: number): () => number {
  let a = seed >>> 0
  return () => {
    a = (a + 0x6d2b79f5) >>> 0
    let t = Math.imul(a ^ (a >>> 15), 1 | a)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

export const LANES: Capabilities = {
  models: ['m'], contextTokens: 1_024, runningMax: 4, tokenise: true, rank: true, preempt: true, cancel: true,
  memory: { cells: 4_096, granule: 1_024, sequences: 4 }, kvBytesPerToken: 100, sharesBytes: false, copy: true, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'yes', because: 'the test says so' }, replayByOrigin: true,
  imageKey: 'k', progress: true, inventory: false,
}
export const BLOCKS: Capabilities = { ...LANES, memory: { cells: 4_096, granule: 16, sequences: 16 }, runningMax: 16 }
export const BARE: Capabilities = {
  ...LANES, memory: null, tokenise: false, rank: false, preempt: false, offload: false, onboard: false, discard: false, imageKey: null,
}
export const SPEEDS: EngineSpeeds = {
  prefillNsPerToken: 5_000_000, decodeBaseNs: 15_000_000, decodeRowNs: 2_000_000, copyOutNsPerToken: 8_000, copyInNsPerToken: 8_000,
}

export const CLAIMS: Claims = {
  identity: { source: 'anonymous', confidence: 0 }, program: null, thread: null, session: null, parent: null, node: null, parents: [], epoch: null, final: false,
  toolResults: [], kind: 'agent',
}

const CLASSES = ['default', 'interactive', 'batch', 'default']

interface Running { call: CallId; engine: EngineId; reign: number; attempt: number; run: number; epoch: number; base: number; recompute: number; prompt: number; forced: number; out: number; output: number; pausing: boolean }

export interface WorldOptions {
  readonly config?: Partial<CoreConfig>
  readonly engines?: readonly Capabilities[]
  /** 0 to 1: how often each fault comes. */
  readonly faults?: number
  /** Agents belong to so many tenants in turn, and to every class in turn; one tenant, one class, where it is not said. */
  readonly tenants?: number
}

interface Agent { id: number; left: number; named: 'program' | 'session' | 'none'; call: CallId | null; results: string[]; turns: number; done: boolean }

export class World {
  core: CoreState
  readonly log: Logged[] = []
  /** Lengths of the log at which a step ended: a log is kept by whole records. */
  readonly records: number[] = []
  readonly config: CoreConfig
  nowUs = 1_000_000
  steps = 0
  readonly counts = new Map<string, number>()
  readonly #chance: () => number
  readonly #options: WorldOptions
  #seen = nothingSeen()
  /** Null where the core did not come from this log. */
  history: History | null = noHistory()
  readonly #events: { atUs: number; seq: number; run: () => void }[] = []
  readonly #running = new Map<string, Running>()
  readonly #agents: Agent[] = []
  readonly #images = new Set<string>()
  #seq = 0
  #reign = 0
  #calls = 0
  #faults: number

  constructor(seed: number, options: WorldOptions = {}) {
    this.#chance = random(seed)
    this.#options = options
    this.#faults = options.faults ?? 0
    // In a part of the worlds all that may sleep does, so that what decides meets programs asleep.
    this.config = { ...CORE_DEFAULTS, programsAwakeMax: seed % 16 === 0 ? 0 : CORE_DEFAULTS.programsAwakeMax, hostBytesMax: 200_000, grantTokens: 32, ...options.config }
    this.core = emptyCore(this.config)
    this.restart()
  }

  // ---------------------------------------------------------------- time

  at(afterUs: number, run: () => void): void {
    this.#seq += 1
    this.#events.push({ atUs: this.nowUs + Math.max(1, Math.round(afterUs)), seq: this.#seq, run })
  }

  /** Runs events until none is left or `untilUs` has come; timers of the core are events too. */
  run(untilUs: number): void {
    for (;;) {
      const timer = [...this.core.timers].sort((a, b) => a[1] - b[1] || (a[0] < b[0] ? -1 : 1))[0]
      this.#events.sort((a, b) => a.atUs - b.atUs || a.seq - b.seq)
      const event = this.#events[0]
      const dueUs = Math.min(timer?.[1] ?? Infinity, event?.atUs ?? Infinity)
      if (dueUs > untilUs) break
      this.nowUs = Math.max(this.nowUs, dueUs)
      if (event !== undefined && event.atUs <= (timer?.[1] ?? Infinity)) {
        this.#events.shift()
        event.run()
      } else if (timer !== undefined) this.feed({ kind: 'due', timer: timer[0] })
    }
    this.nowUs = Math.max(this.nowUs, untilUs)
  }

  get idle(): boolean {
    return this.#events.length === 0
  }

  feed(input: Input): Logged[] {
    return this.took(step(this.core, input, this.nowUs))
  }

  /** What a step, or a test in its place, has decided. */
  took(facts: Logged[]): Logged[] {
    this.steps += 1
    this.log.push(...facts)
    this.records.push(this.log.length)
    for (const { fact } of facts) this.counts.set(fact.kind, (this.counts.get(fact.kind) ?? 0) + 1)
    checkInvariants(this.core, this.#seen)
    checkNobodyIsStuck(this.core)
    if (this.history !== null) checkHistory(this.history, facts)
    for (const logged of facts) this.#perform(logged)
    return facts
  }

  digest(): string {
    return createHash('sha256').update(this.log.map((logged) => JSON.stringify(logged)).join('\n')).digest('hex').slice(0, 16)
  }

  replay(facts: readonly Logged[] = this.log): CoreState {
    const core = emptyCore(this.config)
    for (const logged of facts) apply(core, logged)
    return core
  }

  // ---------------------------------------------------------------- agents

  agents(count: number): void {
    for (let i = 0; i < count; i += 1) {
      const roll = this.#chance()
      const agent: Agent = {
        id: i, left: 1 + Math.floor(this.#chance() * 5), named: roll < 0.4 ? 'program' : roll < 0.8 ? 'session' : 'none',
        call: null, results: [], turns: 1 + Math.floor(this.#chance() * 2), done: false,
      }
      this.#agents.push(agent)
      this.at(this.#chance() * 5_000_000, () => this.#call(agent))
    }
  }

  #tenantOf(agent: Agent): TenantId {
    return tenantId(this.#options.tenants === undefined ? 't' : `t${agent.id % this.#options.tenants}`)
  }

  #call(agent: Agent): void {
    if (agent.done) return
    agent.call = this.submit({
      tenant: this.#tenantOf(agent),
      priorityClass: this.#options.tenants === undefined ? 'default' : CLASSES[agent.id % CLASSES.length] ?? 'default',
      claims: {
        ...CLAIMS,
        program: agent.named === 'program' ? `p${agent.id}` : null,
        session: agent.named === 'session' ? `s${agent.id}` : null,
        identity: { source: agent.named === 'none' ? 'anonymous' : 'explicit', confidence: agent.named === 'none' ? 0 : 100 },
        toolResults: agent.results,
      },
    })
    const call = agent.call
    if (this.#chance() < this.#faults * 0.3) this.at(this.#chance() * 3_000_000, () => this.feed({ kind: 'hangUp', call }))
    if (this.#chance() < this.#faults * 0.2 && agent.named === 'program') {
      this.at(this.#chance() * 3_000_000, () => this.feed({ kind: 'cancelProgram', tenant: this.#tenantOf(agent), program: `p${agent.id}` }))
    }
  }

  submit(overrides: Partial<Submit> = {}): CallId {
    this.#calls += 1
    const call = overrides.call ?? callId(`c${this.#calls}`)
    this.feed({
      kind: 'submit', tenant: tenantId('t'), call, body: bodyId(`body:${call}`), freshProgram: `fresh-${this.#calls}`, claims: CLAIMS,
      model: 'm', digest: `d${this.#calls}`, seed: 1, promptTokensEstimate: 100, maxTokens: 40, exactResume: null,
      priorityClass: 'default', deadlineUs: null, ...overrides,
    })
    return call
  }

  #answered(call: CallId, toolCalls: readonly { readonly id: string }[]): void {
    const agent = this.#agents.find((one) => one.call === call)
    if (agent === undefined) return
    agent.call = null
    agent.results = toolCalls.map(({ id }) => id)
    if (toolCalls.length === 0) {
      agent.turns -= 1
      if (agent.turns <= 0) {
        agent.done = true
        if (agent.named === 'program') this.feed({ kind: 'finishProgram', tenant: this.#tenantOf(agent), program: `p${agent.id}` })
        return
      }
      agent.left = 1 + Math.floor(this.#chance() * 3)
    }
    if (this.#chance() < this.#faults * 0.1) return
    this.at(this.#chance() ** 4 * 20_000_000, () => this.#call(agent))
  }

  // ---------------------------------------------------------------- engines and the driver's part

  /** A control plane begins, over whatever state there is. */
  restart(): void {
    this.#reign = this.core.reign + 1
    this.#running.clear()
    const joins = (this.#options.engines ?? [LANES]).map((capabilities, index) => ({
      engine: engineId(`e${index}`), capabilities, inventory: capabilities.inventory ? this.#held(engineId(`e${index}`)) : [],
    }))
    this.feed({ kind: 'restart', reign: this.#reign, wallOffsetUs: 0, images: [...this.#images] })
    for (const { engine, capabilities, inventory } of joins) this.#join(engine, capabilities, inventory)
  }

  /** What an engine that outlives its control plane has on its device; a fault makes some of it something else. */
  #held(engine: EngineId): Held[] {
    return [...this.core.states.values()].flatMap((state) => {
      const last = state.spans.at(-1)
      if (state.device?.engine !== engine || state.residence.kind !== 'suspended' || last === undefined) return []
      const epoch = state.owner.kind === 'thread' ? this.core.programs.get(this.core.threads.get(state.owner.thread)?.program as never)?.epoch ?? 0 : 1
      const digest = this.#chance() < this.#faults * 0.3 ? 'another' : this.core.segments.get(last.segment)?.digest ?? ''
      return [{ state: state.id, epoch, tokens: state.device.tokens, digest }]
    })
  }

  /** Forgets the live state and builds it again from the log: a control plane that was killed. */
  killControlPlane(): void {
    this.core = this.replay()
    this.restart()
  }

  /** A control plane that was killed before more than `length` facts were durable. */
  crash(length: number): void {
    this.log.length = length
    while ((this.records.at(-1) ?? 0) > length) this.records.pop()
    this.history = noHistory()
    checkHistory(this.history, this.log)
    // Service that only flow facts told of may be lost with them.
    this.#seen = nothingSeen()
    this.killControlPlane()
  }

  #join(engine: EngineId, capabilities: Capabilities, inventory: readonly Held[] = []): void {
    this.feed({ kind: 'engineJoined', engine, reign: this.#reign, capabilities, speeds: SPEEDS, inventory })
  }

  loseEngine(index: number): void {
    const engine = engineId(`e${index}`)
    for (const [call, running] of this.#running) if (running.engine === engine) this.#running.delete(call)
    this.feed({ kind: 'engineLost', engine, reign: this.#reign, why: 'killed' })
    const capabilities = (this.#options.engines ?? [LANES])[index] as Capabilities
    this.at(500_000, () => this.#join(engine, capabilities))
  }

  /** Everybody who can finish shall: no more faults. */
  heal(): void {
    this.#faults = 0
    for (const { id, draining } of this.core.engines.values()) if (draining === true) this.feed({ kind: 'undrainEngine', engine: id })
  }

  #perform({ fact }: Logged): void {
    const reign = this.#reign
    switch (fact.kind) {
      case 'call.arrived':
      case 'call.attached':
      case 'call.retried':
      case 'call.completed':
      case 'call.cancelled':
      case 'call.failed':
        if (fact.kind === 'call.completed') this.#answered(fact.call, fact.toolCalls)
        else if (fact.kind !== 'call.arrived') this.#running.delete(fact.call)
        return this.#measureNext(fact.call)
      case 'call.scheduled': {
        const call = this.core.calls.get(fact.call)
        if (call === undefined) return
        const prompt = Math.max(0, call.promptTokens - fact.baseTokens)
        this.#running.set(call.id, {
          call: call.id, engine: fact.engine, reign, attempt: fact.attempt, run: call.preemptions, epoch: call.epoch, base: fact.baseTokens,
          recompute: fact.recomputeTokens, prompt, forced: fact.forcedTokens,
          out: Math.max(fact.forcedTokens + 1, 1 + Math.floor(this.#chance() * Math.min(call.maxTokens, 30))), output: fact.forcedTokens, pausing: false,
        })
        this.#progressSoon(call.id, fact.attempt)
        return
      }
      case 'call.preempted': {
        const running = this.#running.get(fact.call)
        if (running !== undefined) running.pausing = true
        return
      }
      case 'kv.offload.begun':
      case 'kv.onboard.begun': {
        const { move, engine } = fact
        const onboard = fact.kind === 'kv.onboard.begun'
        this.at(5_000 + this.#chance() * 10_000, () => {
          if (this.#chance() < this.#faults * 0.2) this.feed({ kind: 'moveFailed', engine, reign, move, why: 'no space', sourceLost: onboard && this.#chance() < 0.5 })
          else this.feed({ kind: 'moveDone', engine, reign, move, bytes: fact.tokens * 100 + 1_000, digest: 'x', copyUs: 4_000 })
        })
        return
      }
      case 'kv.moved':
        if (fact.to === 'host') this.#images.add(fact.move)
        if (fact.dropImage !== null) this.#images.delete(fact.dropImage)
        return
      case 'kv.discarded':
      case 'kv.move.failed':
        if (fact.dropImage !== null) this.#images.delete(fact.dropImage)
        return
      default:
    }
  }

  #measureNext(of: CallId): void {
    const thread = this.core.threads.get(this.core.calls.get(of)?.thread ?? '' as never)
    const call = thread?.active == null ? undefined : this.core.calls.get(thread.active)
    if (call?.stage.kind !== 'arrived') return
    const state = thread?.state == null ? undefined : this.core.states.get(thread.state)
    const session = this.core.programs.get(call.program)?.session
    const left = session == null ? undefined : this.core.sessions.get(session)?.states.map((id) => this.core.states.get(id)).at(-1)
    const from = state ?? left
    this.at(2_000, () => {
      const tokens = from === undefined ? 0 : from.spans.reduce((sum, span) => sum + span.tokens, 0)
      const share = this.#chance() < 0.1 ? Math.floor(tokens / 2) : tokens
      this.feed({
        kind: 'measured', call: call.id, promptTokens: Math.min(900, share + 20 + Math.floor(this.#chance() * 150)),
        matched: from?.record == null || share === 0 ? null : { record: from.record, tokens: Math.min(share, 850) }, renderingWon: null,
      })
    })
  }

  #progressSoon(id: CallId, attempt: number): void {
    this.at(100_000 + this.#chance() * 200_000, () => {
      const running = this.#running.get(id)
      if (running?.attempt !== attempt || running.reign !== this.#reign) return
      const from = { engine: running.engine, reign: running.reign, call: id, attempt, run: running.run, epoch: running.epoch }
      if (this.#chance() < this.#faults * 0.05) {
        this.#running.delete(id)
        this.feed({ kind: 'attemptFailed', ...from, retryable: this.#chance() < 0.8, why: 'the engine says so' })
        return
      }
      running.output = Math.min(running.out, running.output + 1 + Math.floor(this.#chance() * 10))
      const fed = Math.max(0, running.output - 1)
      const service = { ...emptyLedger(), useful: { residentUs: running.output * 20_000 + 1_000, workUs: running.output * 9_000 } }
      const report = { service, tailPrefilled: running.prompt, tailDecoded: fed, outputTokens: running.output, recomputedTokens: running.recompute }
      if (running.pausing) {
        this.#running.delete(id)
        this.feed({ kind: 'paused', ...from, report })
      } else if (running.output >= running.out) {
        this.#running.delete(id)
        const agent = this.#agents.find((one) => one.call === id)
        const more = agent !== undefined && agent.left > 1
        if (agent !== undefined) agent.left -= 1
        this.feed({
          kind: 'finished', ...from, finish: more ? 'tool_calls' : 'stop', report, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 10, decodeUs: 20 },
          spans: [{ tokens: running.prompt, origin: 'prefilled' as const, digest: 'p' }, { tokens: fed, origin: 'decoded' as const, digest: 'd' }].filter(({ tokens }) => tokens > 0),
          toolCalls: more ? [{ id: `call_${id}_0`, name: 'search' }] : [], toolEffect: 'read', resume: 'none',
        })
        if (this.#chance() < this.#faults) {
          this.feed({ kind: 'finished', ...from, finish: 'stop', report, parts: { waitUs: 0, recomputeUs: 0, prefillUs: 0, decodeUs: 0 }, spans: [], toolCalls: [], toolEffect: 'read', resume: 'none' })
        }
      } else {
        this.feed({ kind: 'progress', engine: running.engine, reign: running.reign, speeds: null, calls: [{ call: id, attempt, run: running.run, epoch: running.epoch, report }] })
        this.#progressSoon(id, attempt)
      }
    })
  }

  /** Some fault of the larger kind, if chance has it. */
  disturb(): void {
    const roll = this.#chance()
    if (roll < this.#faults * 0.1) this.loseEngine(Math.floor(this.#chance() * (this.#options.engines?.length ?? 1)))
    else if (roll < this.#faults * 0.15) this.killControlPlane()
    else if (roll < this.#faults * 0.3) this.feed({ kind: 'moveDone', engine: engineId('e0'), reign: this.#reign - 1, move: moveId('none'), bytes: 1, digest: '', copyUs: 1 })
  }
}
