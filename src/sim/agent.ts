/**
 * Owns one agent: it plays a plan against whatever control plane is there, and goes wrong as clients and tools do: hangs up,
 * asks twice, cancels, answers late, twice, or never. It checks all that it is shown: no token twice, none left out, none
 * that the undisturbed run would not say (invariants 1, 4 and 10, as a client sees them).
 */
import { tenantId, type CallId, type TenantId } from '../core/ids.ts'
import type { Claims } from '../core/input.ts'
import type { Us } from '../core/units.ts'
import type { CallUpdate, Submission } from '../driver/gateway.ts'
import { Chance, hashOf } from './chance.ts'
import { tokensOf, type Piece, type Texts } from './content.ts'
import type { Life } from './control.ts'
import { toolCallOf } from './engine.ts'
import type { Events } from './events.ts'
import type { FaultName, Faults } from './faults.ts'
import type { Body, Oracle } from './measure.ts'
import type { CallPlan, ProgramPlan } from './plan.ts'

/** Times a call is asked for before its agent gives up. */
const TRIES_MAX = 12

interface AgentWorld {
  readonly events: Events
  readonly faults: Faults
  readonly texts: Texts
  readonly oracle: Oracle
  readonly seed: number
  /** How long a wait for a tool may last before nobody waits any more. */
  readonly interruptMaxUs: Us
  current(): Life | null
  /** What it was shown cannot be. */
  wrong(why: string): void
  ended(agent: Agent): void
}

/** One request under way. */
interface Asking {
  readonly life: Life
  readonly hangUp: () => void
  call: CallId | null
  readonly tokens: number[]
}

export class Agent {
  readonly plan: ProgramPlan
  readonly name: string
  readonly beganUs: Us
  outcome: string | null = null
  calls = 0
  readonly #world: AgentWorld
  readonly #chance: Chance
  readonly #tenant: TenantId
  #pieces: Piece[] = []
  #at = 0
  #tries = 0
  #given: Piece | null = null
  #toolResults: readonly string[] = []
  #asking: Asking | null = null
  #declared = false

  constructor(world: AgentWorld, plan: ProgramPlan) {
    this.#world = world
    this.plan = plan
    this.name = `agent-${plan.number}`
    this.#chance = new Chance(world.seed, this.name)
    this.#tenant = tenantId(plan.tenant)
    this.beganUs = world.events.nowUs
    if (plan.prefix.tokens > 0) this.#pieces.push(plan.prefix)
  }

  begin(): void {
    if (this.outcome !== null) return
    const life = this.#world.current()
    if (life === null) return this.#later(() => this.begin())
    if (!this.plan.declares || this.plan.named !== 'program' || this.#declared) return this.#ask()
    const declare = { tenant: this.#tenant, program: this.name, session: null, agent: this.plan.agent, priorityClass: 'default', deadlineUs: null, parent: null, steps: null }
    this.#await(life, life.driver.declare(declare), () => {
      this.#declared = true
      this.#ask()
    })
  }

  /** The process it spoke to is gone. */
  disconnected(life: Life): void {
    if (this.outcome !== null || this.#asking?.life !== life) return
    this.#asking = null
    this.#later(() => this.begin())
  }

  /** Where it is, for a person. */
  get place(): string {
    const asking = this.#asking === null ? 'asks for nothing' : `asks life ${this.#asking.life.number} for ${this.#asking.call ?? 'a call not known yet'}`
    return `${this.name} (call ${this.#at + 1} of ${this.plan.calls.length}, try ${this.#tries}, ${asking})`
  }

  // ---------------------------------------------------------------- calls

  #ask(): void {
    const call = this.plan.calls[this.#at]
    const life = this.#world.current()
    if (this.outcome !== null) return
    if (call === undefined) return this.#finish()
    if (life === null) return this.#later(() => this.#ask())
    this.#tries += 1
    if (this.#tries > TRIES_MAX) return this.#end('gave up: too many tries')
    this.#given ??= { kind: 'given', id: hashOf(this.#world.seed, `${this.name} ${this.#at}`), tokens: call.given }
    const submission = this.#submission(call, [...this.#pieces, this.#given], this.#toolResults)
    const asking = this.#submit(life, submission, (update) => this.#updated(asking, update))
    this.#asking = asking
    if (life.isAlive) this.#disturb(life, submission, asking)
    else this.disconnected(life)
  }

  #submission(call: CallPlan, pieces: readonly Piece[], toolResults: readonly string[]): Submission {
    const seed = hashOf(this.#world.seed, `seed of ${this.name} ${this.#at}`)
    const body: Body = { pieces, says: call.says, then: call.then === 'tool' ? 'tool' : 'end', seed }
    const { named } = this.plan
    const claims: Claims = {
      identity: { source: named === 'none' ? 'anonymous' : 'explicit', confidence: named === 'none' ? 0 : 100 },
      program: named === 'program' ? this.name : null, thread: null, session: named === 'session' ? this.name : null,
      parent: null, epoch: null, final: false, toolResults, kind: this.plan.agent, node: null, parents: [],
    }
    const text = JSON.stringify(body)
    return {
      tenant: this.#tenant, claims, model: 'm', body: text, digest: `${this.name} ${hashOf(1, text).toString(16)}`,
      promptTokensEstimate: tokensOf(pieces), maxTokens: call.maxTokens ?? call.says + 8, seed, exactResume: null, priorityClass: 'default', deadlineUs: null,
    }
  }

  #submit(life: Life, submission: Submission, updated: (update: CallUpdate) => void): Asking {
    const handle = life.driver.submit(submission)
    const asking: Asking = { life, hangUp: () => handle.hangUp(), call: null, tokens: [] }
    const read = async (): Promise<void> => {
      for await (const update of handle.updates) {
        if (!life.isAlive) return
        this.#look(asking, update)
        updated(update)
      }
    }
    read().catch((error: unknown) => this.#world.wrong(`${this.name}: ${String(error)}`))
    this.calls += 1
    return asking
  }

  /** What may never be shown. */
  #look(asking: Asking, update: CallUpdate): void {
    if (update.kind === 'arrived') asking.call = update.call
    if (update.kind === 'part' && update.part.kind === 'text' && asking.call !== null) {
      for (const text of update.part.text.split(' ')) {
        if (text === '') continue
        const token = Number.parseInt(text, 36)
        const wrong = this.#world.oracle.wrong(asking.call, asking.tokens.length, token)
        if (wrong !== null) this.#world.wrong(wrong)
        asking.tokens.push(token)
      }
    }
    if (update.kind === 'done' && update.outputTokens !== asking.tokens.length) {
      this.#world.wrong(`${asking.call ?? 'a call'} of ${this.name} is done with ${update.outputTokens} tokens, and ${asking.tokens.length} were shown`)
    }
  }

  #updated(asking: Asking, update: CallUpdate): void {
    if (this.#asking !== asking || this.outcome !== null) return
    if (update.kind === 'done') this.#done(asking, update)
    else if (update.kind === 'refused' || update.kind === 'failed') this.#refused(update.code)
  }

  #done(asking: Asking, { finish }: Extract<CallUpdate, { kind: 'done' }>): void {
    const plan = this.plan.calls[this.#at]
    this.#asking = null
    if (plan === undefined || this.#given === null || asking.call === null) return
    this.#pieces = [...this.#pieces, this.#given, this.#world.texts.keep(asking.tokens)]
    this.#given = null
    this.#at += 1
    this.#tries = 0
    this.#toolResults = finish === 'tool_calls' ? [toolCallOf(asking.call)] : []
    if (this.#at >= this.plan.calls.length) return this.#finish()
    this.#wait(plan, finish === 'tool_calls')
  }

  #wait(plan: CallPlan, forTool: boolean): void {
    const fault = (name: FaultName): Chance | null => (forTool ? this.#world.faults.at(name, this.name) : null)
    if (fault('tool.never') !== null) return this.#end('never returned')
    const timeout = fault('tool.timeout')
    const late = fault('tool.late')
    const waitUs = late !== null ? this.#world.interruptMaxUs + late.tail(1_000, 10_000_000)
      : timeout !== null ? timeout.between(5_000_000, 20_000_000) : plan.waitUs
    this.#world.events.after(waitUs, () => {
      this.#ask()
      const twice = fault('tool.twice')
      if (twice !== null) this.#world.events.after(twice.tail(1_000, 4_000_000), () => this.#again(twice))
    })
  }

  /** The same tool call answered once more, with another result: a fork, or nothing. */
  #again(how: Chance): void {
    const life = this.#world.current()
    const call = this.plan.calls[this.#at]
    if (life === null || call === undefined || this.#toolResults.length === 0) return
    const other: Piece = { kind: 'given', id: how.next(), tokens: call.given }
    this.#submit(life, this.#submission({ ...call, then: 'end' }, [...this.#pieces, other], this.#toolResults), () => undefined)
  }

  #refused(code: string): void {
    this.#asking = null
    if (OVER.has(code)) return this.#end(`gave up: ${code}`)
    this.#later(() => this.#ask())
  }

  // ---------------------------------------------------------------- going wrong

  #disturb(life: Life, submission: Submission, asking: Asking): void {
    const { faults, events } = this.#world
    const hangUp = faults.at('client.hangUp', this.name)
    if (hangUp !== null) {
      events.after(hangUp.tail(1_000, 5_000_000), () => {
        asking.hangUp()
        if (this.#asking !== asking) return
        this.#asking = null
        if (hangUp.hit(300_000)) this.#end('gave up: hung up')
        else this.#later(() => this.#ask())
      })
    }
    const duplicate = faults.at('client.duplicate', this.name)
    if (duplicate !== null) {
      events.after(duplicate.tail(100, 3_000_000), () => {
        if (life.isAlive && this.#asking === asking) this.#submit(life, submission, () => undefined)
      })
    }
    const cancel = this.plan.named === 'program' ? faults.at('client.cancel', this.name) : null
    if (cancel !== null) events.after(cancel.tail(1_000, 8_000_000), () => this.#cancel())
  }

  #cancel(): void {
    const life = this.#world.current()
    if (this.outcome !== null || life === null) return
    void life.driver.cancel(this.#tenant, this.name)
    this.#end('cancelled')
  }

  // ---------------------------------------------------------------- the end

  #finish(): void {
    if (this.plan.named !== 'program' || !this.plan.finishes) return this.#end('done')
    const life = this.#world.current()
    if (life === null) return this.#later(() => this.#finish())
    this.#await(life, life.driver.finish(this.#tenant, this.name), () => this.#end('done'))
  }

  #end(outcome: string): void {
    if (this.outcome !== null) return
    this.outcome = outcome
    this.#asking = null
    this.#world.ended(this)
  }

  /** The life may end before it answers. */
  #await(life: Life, reply: Promise<unknown>, then: () => void): void {
    const asking: Asking = { life, hangUp: () => undefined, call: null, tokens: [] }
    this.#asking = asking
    if (!life.isAlive) return this.disconnected(life)
    reply.then(() => {
      if (this.#asking !== asking || !life.isAlive || this.outcome !== null) return
      this.#asking = null
      then()
    }, (error: unknown) => this.#world.wrong(`${this.name}: ${String(error)}`))
  }

  #later(then: () => void): void {
    this.#world.events.after(this.#chance.tail(100_000, 4_000_000), () => { if (this.outcome === null) then() })
  }
}

/** Codes after which asking again is no use. */
const OVER: ReadonlySet<string> = new Set([
  'program_cancelled', 'program_ended', 'stale_epoch', 'context_too_long', 'unknown_tool_call', 'missing_tool_results', 'invalid_request',
])
