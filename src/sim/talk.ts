/**
 * Owns one conversation of an agent: calls that follow one another in one thread, asked again where they were refused or
 * the process that was asked is gone. It goes wrong as clients do: hangs up, asks twice, forgets an answer and asks once
 * more. It checks all that it is shown: no token twice, none left out, none that the undisturbed run would not say
 * (invariants 1, 4 and 10, as a client sees them); and what has had an effect is shown again, never made anew (7).
 */
import type { CallId, TenantId } from '../core/ids.ts'
import type { Claims } from '../core/input.ts'
import type { FinishReason } from '../core/state.ts'
import type { Us } from '../core/units.ts'
import type { CallUpdate, Submission } from '../driver/gateway.ts'
import { Chance, hashOf, mix } from './chance.ts'
import { tokensOf, type Piece, type Texts } from './content.ts'
import type { Life } from './control.ts'
import type { Events } from './events.ts'
import type { Faults } from './faults.ts'
import type { Body, Oracle } from './measure.ts'
import type { CallPlan } from './plan.ts'
import { toolCallOf } from './tool.ts'

/** Times a call is asked for before its agent gives up. */
const TRIES_MAX = 12

export interface TalkWorld {
  readonly events: Events
  readonly faults: Faults
  readonly texts: Texts
  readonly oracle: Oracle
  readonly seed: number
  current(): Life | null
  /** What it was shown cannot be. */
  wrong(invariant: number, why: string): void
}

/** The next call of the conversation. */
interface Ask {
  /** Names what it is given and its seed: the same on every try. */
  readonly name: string
  readonly call: CallPlan
  readonly claims: Omit<Claims, 'toolResults'>
  readonly priorityClass: string
  readonly deadlineUs: Us | null
}

export interface Answer {
  readonly call: CallId
  /** As its client knows it. */
  readonly program: string
  readonly finish: FinishReason
}

interface Listener {
  answered(answer: Answer): void
  gaveUp(why: string): void
}

/** One request under way. */
interface Asking {
  readonly life: Life
  readonly hangUp: () => void
  call: CallId | null
  program: string
  readonly tokens: number[]
}

export class Talk {
  /** Requests made. */
  requests = 0
  readonly #world: TalkWorld
  readonly #agent: string
  readonly #tenant: TenantId
  readonly #listener: Listener
  readonly #chance: Chance
  #pieces: readonly Piece[]
  #toolResults: readonly string[] = []
  #next: Ask | null = null
  #tries = 0
  #asking: Asking | null = null
  #isOver = false
  /** Where it was before the last answer. */
  #before: { readonly pieces: readonly Piece[]; readonly toolResults: readonly string[]; readonly call: CallId } | null = null
  /** The call that has had its effect, and is asked for again. */
  #effective: CallId | null = null

  constructor(world: TalkWorld, agent: string, tenant: TenantId, pieces: readonly Piece[], listener: Listener) {
    this.#world = world
    this.#agent = agent
    this.#tenant = tenant
    this.#pieces = pieces
    this.#listener = listener
    this.#chance = new Chance(world.seed, `${agent} talks`)
  }

  get pieces(): readonly Piece[] {
    return this.#pieces
  }

  /** What it asks for now; null: nothing. */
  get call(): CallId | null {
    return this.#asking?.call ?? null
  }

  get place(): string {
    return this.#asking === null ? `asks for nothing, try ${this.#tries}`
      : `asks life ${this.#asking.life.number} for ${this.#asking.call ?? 'a call not known yet'}, try ${this.#tries}`
  }

  ask(next: Ask): void {
    this.#next = next
    this.#tries = 0
    this.#try()
  }

  /** The last answer is lost on its way into the agent's memory: it is asked for again. `hadEffect`: its tools have done their work. */
  forget(hadEffect: boolean): void {
    if (this.#before === null || this.#next === null) return
    this.#pieces = this.#before.pieces
    this.#toolResults = this.#before.toolResults
    this.#effective = hadEffect && isNamed(this.#next, this.#toolResults) ? this.#before.call : null
    this.ask(this.#next)
  }

  /** The same tool call answered once more, with another result: a fork, or nothing. */
  again(how: Chance): void {
    const life = this.#world.current()
    const next = this.#next
    if (life === null || next === null || this.#toolResults.length === 0) return
    const other: Piece = { kind: 'given', id: how.next(), tokens: next.call.given }
    this.#submit(life, this.#submission({ ...next, call: { ...next.call, then: 'end' } }, other), () => undefined)
  }

  stop(): void {
    this.#isOver = true
    this.#asking = null
  }

  /** The process it spoke to is gone. */
  disconnected(life: Life): void {
    if (this.#isOver || this.#asking?.life !== life) return
    this.#asking = null
    this.#later()
  }

  #later(): void {
    this.#world.events.after(this.#chance.tail(100_000, 4_000_000), () => this.#try())
  }

  #try(): void {
    const next = this.#next
    if (this.#isOver || next === null || this.#asking !== null) return
    const life = this.#world.current()
    if (life === null) return this.#later()
    this.#tries += 1
    if (this.#tries > TRIES_MAX) return this.#giveUp('too many tries')
    const submission = this.#submission(next, givenOf(this.#world.seed, next))
    const asking = this.#submit(life, submission, (update) => this.#updated(asking, update))
    this.#asking = asking
    if (life.isAlive) this.#disturb(life, submission, asking)
    else this.disconnected(life)
  }

  #submission({ name, call, claims, priorityClass, deadlineUs }: Ask, given: Piece): Submission {
    const { seed: worldSeed } = this.#world
    const seed = hashOf(worldSeed, `seed of ${name}`)
    const pieces = [...this.#pieces, given]
    const body: Body = { pieces, says: call.says, then: call.then === 'tool' ? 'tool' : 'end', tool: call.tool, seed }
    const digest = pieces.reduce((sum, piece) => mix(mix(sum, piece.id), piece.tokens), mix(seed, call.says))
    return {
      tenant: this.#tenant, claims: { ...claims, toolResults: this.#toolResults }, model: 'm', body: JSON.stringify(body), digest: `${this.#agent} ${digest.toString(16)}`,
      promptTokensEstimate: tokensOf(pieces), maxTokens: call.maxTokens ?? call.says + 8, seed, exactResume: null, priorityClass, deadlineUs,
    }
  }

  #submit(life: Life, submission: Submission, updated: (update: CallUpdate) => void): Asking {
    const handle = life.driver.submit(submission)
    const asking: Asking = { life, hangUp: () => handle.hangUp(), call: null, program: '', tokens: [] }
    const read = async (): Promise<void> => {
      for await (const update of handle.updates) {
        if (!life.isAlive) return
        this.#look(asking, update)
        updated(update)
      }
    }
    read().catch((error: unknown) => this.#world.wrong(0, `${this.#agent}: ${String(error)}`))
    this.requests += 1
    return asking
  }

  /** What may never be shown. */
  #look(asking: Asking, update: CallUpdate): void {
    if (update.kind === 'arrived') {
      asking.call = update.call
      asking.program = update.program
    }
    if (update.kind === 'part' && update.part.kind === 'text' && asking.call !== null) {
      for (const token of this.#world.texts.shownIn(update.part.text)) {
        const wrong = this.#world.oracle.wrong(asking.call, asking.tokens.length, token)
        if (wrong !== null) this.#world.wrong(10, wrong)
        asking.tokens.push(token)
      }
    }
    if (update.kind === 'done' && update.outputTokens !== asking.tokens.length) {
      this.#world.wrong(1, `${asking.call ?? 'a call'} of ${this.#agent} is done with ${update.outputTokens} tokens, and ${asking.tokens.length} were shown`)
    }
  }

  #updated(asking: Asking, update: CallUpdate): void {
    if (this.#asking !== asking || this.#isOver) return
    if (update.kind === 'arrived') this.#checkEffect(asking.life, update.call)
    if (update.kind === 'done') this.#done(asking, update)
    else if (update.kind === 'refused' || update.kind === 'failed') this.#refused(update.code)
  }

  #checkEffect({ driver }: Life, call: CallId): void {
    const before = this.#effective
    this.#effective = null
    const known = before === null ? undefined : driver.core.calls.get(before)
    if (known === undefined || known.id === call || driver.core.programs.get(known.program)?.stage.kind !== 'open') return
    this.#world.wrong(7, `the tools of ${known.id} have done their work, and ${this.#agent}, which asks for it again, is given ${call}`)
  }

  #done(asking: Asking, { finish }: Extract<CallUpdate, { kind: 'done' }>): void {
    this.#asking = null
    const { call, program, tokens } = asking
    const next = this.#next
    if (next === null || call === null) return
    this.#before = { pieces: this.#pieces, toolResults: this.#toolResults, call }
    this.#pieces = [...this.#pieces, givenOf(this.#world.seed, next), this.#world.texts.keep(tokens)]
    this.#toolResults = finish === 'tool_calls' ? [toolCallOf(call)] : []
    this.#listener.answered({ call, program, finish })
  }

  #refused(code: string): void {
    this.#asking = null
    if (OVER.has(code)) this.#giveUp(code)
    else this.#later()
  }

  #giveUp(why: string): void {
    this.#next = null
    this.#listener.gaveUp(why)
  }

  #disturb(life: Life, submission: Submission, asking: Asking): void {
    const { faults, events } = this.#world
    const hangUp = faults.at('client.hangUp', this.#agent)
    if (hangUp !== null) {
      events.after(hangUp.tail(1_000, 5_000_000), () => {
        asking.hangUp()
        if (this.#asking !== asking) return
        this.#asking = null
        if (hangUp.hit(300_000)) this.#giveUp('hung up')
        else this.#later()
      })
    }
    const duplicate = faults.at('client.duplicate', this.#agent)
    if (duplicate === null) return
    events.after(duplicate.tail(100, 3_000_000), () => {
      if (life.isAlive && this.#asking === asking) this.#submit(life, submission, () => undefined)
    })
  }
}

/** A retry is known by the name of its program or session, or by the results that it brings. */
const isNamed = ({ claims }: Ask, toolResults: readonly string[]): boolean =>
  claims.program !== null || claims.session !== null || toolResults.length > 0

const givenOf = (seed: number, { name, call }: Ask): Piece => ({ kind: 'given', id: hashOf(seed, name), tokens: call.given })

/** Codes after which asking again is no use. */
const OVER: ReadonlySet<string> = new Set([
  'program_cancelled', 'program_ended', 'stale_epoch', 'context_too_long', 'unknown_tool_call', 'missing_tool_results', 'invalid_request',
  'thread_cancelled', 'node_closed', 'node_conflict', 'parent_failed', 'graph_cycle', 'graph_full', 'program_full', 'unknown_parent', 'call_cancelled',
])
