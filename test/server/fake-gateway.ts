/**
 * A gateway whose calls are played by the test: it keeps what was submitted and says what it is told to say. Its core is
 * a real one, written by `apply` from the facts that the test tells.
 */
import { apply, emptyCore } from '../../src/core/apply.ts'
import { CORE_DEFAULTS } from '../../src/core/config.ts'
import { effectsRemaining } from '../../src/core/effects.ts'
import { FACT_VERSION, type Fact, type Logged } from '../../src/core/fact.ts'
import { step } from '../../src/core/step.ts'
import type { Input } from '../../src/core/input.ts'
import { callId, engineId, programId, sessionId, threadId, type TenantId } from '../../src/core/ids.ts'
import type { Capabilities, CoreState } from '../../src/core/state.ts'
import { standingOf } from '../../src/driver/engine-standing.ts'
import type { CallUpdate, EngineReply, Gateway, ProgramReply, Submission } from '../../src/driver/gateway.ts'
import type { ChatCall } from '../../src/protocol/chat.ts'

export interface FakeCall {
  readonly id: string
  readonly submission: Submission
  readonly chat: ChatCall
  /** Resolves when the door hung up. */
  readonly hungUp: Promise<void>
  /** Updates that the door has taken. */
  readonly taken: () => number
  readonly say: (update: CallUpdate) => void
  readonly arrive: (program?: string) => void
  readonly text: (text: string) => void
  readonly done: (more?: Partial<Extract<CallUpdate, { kind: 'done' }>>) => void
  /** The stream of updates ends, with or without a last word. */
  readonly close: () => void
}

export interface FakeGateway extends Gateway {
  readonly core: CoreState
  readonly calls: FakeCall[]
  readonly logged: Logged[]
  /** Applied to the core, then shown. */
  readonly tell: (fact: Fact) => void
  /** Shown to who watches, and no more. */
  readonly show: (fact: Fact) => void
  readonly answers: Partial<Record<'declare' | 'finish' | 'cancel', ProgramReply>>
  time: number
}

async function told(gateway: FakeGateway, engine: string, fact: Fact): Promise<EngineReply> {
  if (!gateway.core.engines.has(engineId(engine))) return { ok: false, code: 'unknown_engine', why: engine }
  gateway.tell(fact)
  return { ok: true }
}

export function fakeGateway(play: (call: FakeCall) => void = () => undefined): FakeGateway {
  const core = emptyCore(CORE_DEFAULTS)
  const watchers = new Set<(logged: Logged) => void>()
  const gateway: FakeGateway = {
    core,
    calls: [],
    logged: [],
    answers: {},
    time: 1_000_000,
    tell(fact) {
      const logged: Logged = { seq: core.seq + 1, atUs: gateway.time, version: FACT_VERSION, fact }
      apply(core, logged)
      gateway.logged.push(logged)
      for (const watcher of watchers) watcher(logged)
    },
    show(fact) {
      for (const watcher of watchers) watcher({ seq: core.seq + 1, atUs: gateway.time, version: FACT_VERSION, fact })
    },
    submit(submission) {
      const { call, updates, hangUp } = fakeCall(`c${gateway.calls.length + 1}`, submission)
      gateway.calls.push(call)
      queueMicrotask(() => play(call))
      return { updates, hangUp }
    },
    declare({ tenant, program, session, agent, priorityClass, deadlineUs, parent, steps }) {
      const raw = program ?? `p${core.programs.size + 1}`
      if (core.programs.has(programId(tenant, raw))) return Promise.resolve({ ok: false, code: 'duplicate_program', why: raw })
      gateway.tell({
        kind: 'program.started', program: programId(tenant, raw), tenant, session: session === null ? null : sessionId(tenant, session),
        declared: true, agent, identity: { source: 'explicit', confidence: 100 }, priorityClass, deadlineUs,
        parent: parent === null ? null : programId(tenant, parent), steps,
      })
      return Promise.resolve({ ok: true, program: raw })
    },
    engines: () => [...core.engines.values()].map((engine) => standingOf(engine.id, engine)),
    drain: (engine) => told(gateway, engine, { kind: 'engine.drain.begun', engine: engineId(engine) }),
    undrain: (engine) => told(gateway, engine, { kind: 'engine.drain.ended', engine: engineId(engine) }),
    finish: (tenant, program) => end(gateway, 'finish', tenant, program),
    cancel: (tenant, program) => end(gateway, 'cancel', tenant, program),
    report: (tenant, program, report) => act(gateway, watchers, program, { kind: 'reportGraph', tenant, program, ...report }),
    cancelThread: (tenant, program, thread) => act(gateway, watchers, program, { kind: 'cancelThread', tenant, program, thread }),
    cancelCall: (tenant, program, call) => act(gateway, watchers, program, { kind: 'cancelCall', tenant, program, call }),
    effectsRemaining: (tenant, program, thread) => effectsRemaining(core, programId(tenant, program), thread === null ? null : threadId(programId(tenant, program), thread)),
    facts: (tenant, program, max) => gateway.logged
      .filter(({ fact }) => 'program' in fact && fact.program === programId(tenant, program)).slice(-max),
    watch(watcher) {
      watchers.add(watcher)
      return () => { watchers.delete(watcher) }
    },
    commitEffect: (tenant, raw, toolCall, record) => commit(gateway, tenant, raw, toolCall, record),
    nowUs: () => gateway.time,
  }
  return gateway
}

/** What the core itself decides. */
function act(gateway: FakeGateway, watchers: ReadonlySet<(logged: Logged) => void>, program: string, input: Input): Promise<ProgramReply> {
  const facts = step(gateway.core, input, gateway.time)
  gateway.logged.push(...facts)
  for (const logged of facts) for (const watcher of watchers) watcher(logged)
  const refused = facts.map(({ fact }) => fact).find((fact) => fact.kind === 'program.refused')
  return Promise.resolve(refused === undefined ? { ok: true, program } : { ok: false, code: refused.code, why: refused.why })
}

function commit(gateway: FakeGateway, tenant: TenantId, raw: string, toolCall: string, record: string | null): Promise<ProgramReply> {
  const program = programId(tenant, raw)
  const interrupt = [...gateway.core.interrupts.values()].find((one) => one.program === program && one.toolCallIds.includes(toolCall))
  if (interrupt === undefined) return Promise.resolve({ ok: false, code: 'unknown_tool_call', why: toolCall })
  gateway.tell({ kind: 'effect.committed', program, interrupt: interrupt.id, effectKey: interrupt.effectKey, toolCall, record })
  return Promise.resolve({ ok: true, program: raw })
}

function end(gateway: FakeGateway, how: 'finish' | 'cancel', tenant: TenantId, raw: string): Promise<ProgramReply> {
  const answer = gateway.answers[how]
  const id = programId(tenant, raw)
  if (answer !== undefined) return Promise.resolve(answer)
  if (!gateway.core.programs.has(id)) return Promise.resolve({ ok: false, code: 'unknown_program', why: raw })
  gateway.tell(how === 'finish' ? { kind: 'program.completed', program: id, provisional: false }
    : { kind: 'program.cancelled', program: id, epoch: 2, effectsRemaining: [] })
  return Promise.resolve({ ok: true, program: raw })
}

function fakeCall(id: string, submission: Submission): { call: FakeCall; updates: AsyncIterable<CallUpdate>; hangUp: () => void } {
  const said: (CallUpdate | null)[] = []
  let wake: (() => void) | null = null
  let taken = 0
  const put = (update: CallUpdate | null): void => {
    said.push(update)
    wake?.()
  }
  let hangUp = (): void => undefined
  const hungUp = new Promise<void>((resolve) => { hangUp = resolve })
  async function* updates(): AsyncGenerator<CallUpdate> {
    for (;;) {
      const next = said.shift()
      if (next === null) return
      if (next === undefined) await new Promise<void>((resolve) => { wake = resolve })
      else {
        taken++
        yield next
      }
    }
  }
  const call: FakeCall = {
    id, submission, hungUp,
    chat: JSON.parse(submission.body),
    taken: () => taken,
    say: put,
    arrive: (program = submission.claims.program ?? `fresh-${id}`) => put({ kind: 'arrived', call: callId(id), program, identity: submission.claims.identity }),
    text: (text) => put({ kind: 'part', part: { kind: 'text', text } }),
    done: (more = {}) => put({ kind: 'done', finish: 'stop', promptTokens: 12, outputTokens: 3, cachedTokens: 8, resume: 'none', queuedUs: 250_000, ...more }),
    close: () => put(null),
  }
  return { call, updates: updates(), hangUp: () => hangUp() }
}

/** Says `text` in two pieces and ends. */
export function answering(text: string): (call: FakeCall) => void {
  return (call) => {
    call.arrive()
    call.text(text.slice(0, 2))
    call.text(text.slice(2))
    call.done()
  }
}

const CAPABILITIES: Capabilities = {
  models: ['tiny'], contextTokens: 2_048, runningMax: 4, tokenise: true, rank: true, preempt: true, cancel: true,
  memory: { cells: 8_192, granule: 2_048, sequences: 4 }, kvBytesPerToken: 1_000, sharesBytes: false, copy: false, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'yes', because: 'the probe said so' }, replayByOrigin: true,
  imageKey: 'k', progress: true, inventory: false,
}

export function joinEngine(gateway: FakeGateway, more: Partial<Capabilities> = {}): void {
  gateway.tell({
    kind: 'engine.joined', engine: engineId('e1'), capabilities: { ...CAPABILITIES, ...more },
    speeds: { prefillNsPerToken: 1, decodeBaseNs: 1, decodeRowNs: 1, copyOutNsPerToken: 1, copyInNsPerToken: 1 },
  })
}
