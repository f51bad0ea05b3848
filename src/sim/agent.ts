/**
 * Owns one agent that works in a chain: it plays a plan against whatever control plane is there, and goes wrong as its
 * tools do, which answer late, twice, or never; or it is cancelled. One tool of it may be a sub-agent. What it is shown is checked in
 * `talk.ts`.
 */
import { tenantId, type CallId, type TenantId } from '../core/ids.ts'
import type { Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import type { Life } from './control.ts'
import { Errands } from './errands.ts'
import type { FaultName } from './faults.ts'
import type { CallPlan, ProgramPlan } from './plan.ts'
import { Talk, type Answer, type TalkWorld } from './talk.ts'
import { hasEffect, toolCallOf } from './tool.ts'

export interface AgentWorld extends TalkWorld {
  /** How long a wait for a tool may last before nobody waits any more. */
  readonly interruptMaxUs: Us
  ended(agent: Runner): void
  /** A sub-agent begins; `ended` when it has. */
  begin(plan: ProgramPlan, ended: () => void): void
}

/** What plays a plan. */
export interface Runner {
  readonly name: string
  readonly number: number
  /** Null: under way. */
  readonly outcome: string | null
  /** Where it is, for a person. */
  readonly place: string
  begin(): void
  /** The process it spoke to is gone. */
  disconnected(life: Life): void
}

export class Agent implements Runner {
  readonly name: string
  readonly number: number
  outcome: string | null = null
  readonly #plan: ProgramPlan
  readonly #world: AgentWorld
  readonly #tenant: TenantId
  readonly #talk: Talk
  readonly #errands: Errands
  #at = 0
  /** By the clock of the control plane it began with. */
  #deadlineUs: Us | null = null

  constructor(world: AgentWorld, plan: ProgramPlan) {
    this.#world = world
    this.#plan = plan
    this.number = plan.number
    this.name = `agent-${plan.number}`
    this.#tenant = tenantId(plan.tenant)
    this.#errands = new Errands(world, this.name, new Chance(world.seed, this.name))
    this.#talk = new Talk(world, this.name, this.#tenant, plan.prefix.tokens > 0 ? [plan.prefix] : [], {
      answered: (answer) => this.#answered(answer),
      gaveUp: (why) => this.#end(`gave up: ${why}`),
    })
  }

  begin(): void {
    const { named, declares, agent, deadlineUs, parent, priorityClass } = this.#plan
    const begun = this.#world.current()
    if (begun === null) return void this.#world.events.after(RETRY_US, () => this.begin())
    if (deadlineUs !== null) this.#deadlineUs = begun.driver.nowUs() + deadlineUs
    if (!declares || named !== 'program') return this.#ask()
    this.#errands.do((life) => life.driver.declare({
      tenant: this.#tenant, program: this.name, session: null, agent, priorityClass, deadlineUs: this.#deadlineUs,
      // Its calls name its parent too: where it is not declared, the core learns of it late.
      parent: this.#plan.calls.length > 1 ? parent : null, steps: this.#plan.finishes ? this.#plan.calls.length : null,
    }), () => this.#ask())
  }

  disconnected(life: Life): void {
    this.#talk.disconnected(life)
    this.#errands.disconnected(life)
  }

  get place(): string {
    return `${this.name} (call ${this.#at + 1} of ${this.#plan.calls.length}, ${this.#talk.place}, ${this.#errands.count} errands)`
  }

  // ---------------------------------------------------------------- calls

  #ask(): void {
    const call = this.#plan.calls[this.#at]
    if (this.outcome !== null) return
    if (call === undefined) return this.#finish()
    const { named, agent, parent, priorityClass } = this.#plan
    this.#talk.ask({
      name: `${this.name} ${this.#at}`, call, priorityClass, deadlineUs: this.#deadlineUs,
      claims: {
        identity: { source: named === 'none' ? 'anonymous' : 'explicit', confidence: named === 'none' ? 0 : 100 },
        program: named === 'program' ? this.name : null, thread: null, session: named === 'session' ? this.name : null,
        parent, epoch: null, final: false, kind: agent, node: null, parents: [],
      },
    })
    const cancel = named === 'program' ? this.#world.faults.at('client.cancel', this.name) : null
    if (cancel !== null) this.#world.events.after(cancel.tail(1_000, 8_000_000), () => this.#cancel())
  }

  #answered({ call, program, finish }: Answer): void {
    const plan = this.#plan.calls[this.#at]
    this.#at += 1
    if (plan === undefined || this.#at >= this.#plan.calls.length) return this.#finish()
    if (finish !== 'tool_calls') return void this.#world.events.after(plan.waitUs, () => this.#ask())
    if (plan.sub === null) return this.#wait(plan, call, program)
    this.#world.begin(plan.sub, () => { if (this.outcome === null) this.#ask() })
  }

  #wait(plan: CallPlan, call: CallId, program: string): void {
    const fault = (name: FaultName): Chance | null => this.#world.faults.at(name, this.name)
    if (fault('tool.never') !== null) return this.#end('never returned')
    const timeout = fault('tool.timeout')
    const late = fault('tool.late')
    const waitUs = late !== null ? this.#world.interruptMaxUs + late.tail(1_000, 10_000_000)
      : timeout !== null ? timeout.between(5_000_000, 20_000_000) : plan.waitUs
    this.#world.events.after(waitUs, () => {
      if (this.outcome !== null) return
      if (!hasEffect(plan.tool) || !plan.commits) return this.#goOn()
      // It pays first, and says so before anything else is done.
      this.#errands.do((life) => life.driver.commitEffect(this.#tenant, program, toolCallOf(call), 'receipt'), (reply) => this.#goOn(reply.ok))
    })
  }

  /** With the results; or its memory of what it was shown is gone, and it asks again. */
  #goOn(hadEffect = false): void {
    if (this.outcome !== null) return
    const { events, faults } = this.#world
    if (faults.at('client.forgets', this.name) !== null) {
      this.#at -= 1
      return this.#talk.forget(hadEffect)
    }
    this.#ask()
    const twice = faults.at('tool.twice', this.name)
    if (twice !== null) events.after(twice.tail(1_000, 4_000_000), () => this.#talk.again(twice))
  }

  // ---------------------------------------------------------------- the end

  #cancel(): void {
    const life = this.#world.current()
    if (this.outcome !== null || life === null) return
    void life.driver.cancel(this.#tenant, this.name)
    this.#end('cancelled')
  }

  #finish(): void {
    if (this.#plan.named !== 'program' || !this.#plan.finishes) return this.#end('done')
    this.#errands.do((life) => life.driver.finish(this.#tenant, this.name), () => this.#end('done'))
  }

  #end(outcome: string): void {
    if (this.outcome !== null) return
    this.outcome = outcome
    this.#talk.stop()
    this.#errands.stop()
    this.#world.ended(this)
  }
}

const RETRY_US: Us = 500_000
