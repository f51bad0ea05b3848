/**
 * Owns one agent that reports its graph: a runtime that tells nodes and forks bit by bit, runs the calls and the other
 * nodes as their parents commit, and goes wrong as runtimes do: a tool fails, a call or a thread is cancelled in the
 * middle, its program is. It looks at what the control plane knows of its graph, as a runtime does that follows events.
 */
import { nodeId, programId, tenantId, threadId, type CallId, type TenantId } from '../core/ids.ts'
import type { GraphNode } from '../core/graph/graph-state.ts'
import { neededOf } from '../core/graph/join.ts'
import type { Us } from '../core/units.ts'
import type { GraphReport } from '../driver/gateway.ts'
import type { AgentWorld, Runner } from './agent.ts'
import { Chance } from './chance.ts'
import type { Life } from './control.ts'
import { Errands } from './errands.ts'
import type { GraphPlan, NodePlan } from './graph-plan.ts'
import { Talk } from './talk.ts'
import { hasEffect, toolCallOf } from './tool.ts'

/** Looks at its graph before it gives its program up. */
const LOOKS_MAX = 400
/** To declare it costs more. */
const DECLARED_IS_LOOKS = 30

interface Lane {
  readonly talk: Talk
  /** The node that it is at; null: none. */
  node: NodePlan | null
  /** Its call is done, and its tool is not. */
  answering: boolean
}

export class GraphAgent implements Runner {
  readonly name: string
  readonly number: number
  outcome: string | null = null
  readonly #plan: GraphPlan
  readonly #world: AgentWorld
  readonly #tenant: TenantId
  readonly #chance: Chance
  readonly #errands: Errands
  readonly #lanes = new Map<string, Lane>()
  readonly #told = new Set<NodePlan>()
  readonly #begun = new Set<NodePlan>()
  readonly #dropped = new Set<NodePlan>()
  #telling = false
  #part: number
  #looks = 0

  constructor(world: AgentWorld, plan: GraphPlan) {
    this.#world = world
    this.#plan = plan
    this.#part = plan.part
    this.number = plan.number
    this.name = `agent-${plan.number}`
    this.#tenant = tenantId(plan.tenant)
    this.#chance = new Chance(world.seed, this.name)
    this.#errands = new Errands(world, this.name, this.#chance)
  }

  get place(): string {
    const lanes = [...this.#lanes].map(([thread, { talk, node }]) => `${thread} at ${node?.report.node ?? 'nothing'} ${talk.place}`)
    return `${this.name} (${this.#told.size} of ${this.#plan.nodes.length} nodes told, ${this.#errands.count} errands; ${lanes.join('; ')})`
  }

  begin(): void {
    const begun = this.#world.current()
    if (begun === null) return void this.#world.events.after(LOOK_US.high, () => this.begin())
    const { agent, priorityClass, deadlineUs, session } = this.#plan
    const dueUs = deadlineUs === null ? null : begun.driver.nowUs() + deadlineUs
    this.#errands.do((life) => life.driver.declare({
      tenant: this.#tenant, program: this.name, session: session ? this.name : null, agent, priorityClass, deadlineUs: dueUs, parent: null, steps: null,
    }), (reply) => {
      if (reply.ok || reply.code === 'duplicate_program') return this.#lookSoon()
      this.#looks += DECLARED_IS_LOOKS
      if (this.#looks > LOOKS_MAX) this.#end(`gave up: ${reply.code}`)
      else this.#world.events.after(LOOK_US.high, () => this.begin())
    })
  }

  disconnected(life: Life): void {
    if (this.outcome !== null) return
    this.#errands.disconnected(life)
    for (const { talk } of this.#lanes.values()) talk.disconnected(life)
  }

  // ---------------------------------------------------------------- the loop of a runtime

  #lookSoon(): void {
    this.#world.events.after(this.#chance.tail(LOOK_US.low, LOOK_US.high), () => {
      if (this.outcome !== null) return
      this.#look()
      if (this.outcome === null) this.#lookSoon()
    })
  }

  #look(): void {
    const life = this.#world.current()
    if (life === null) return
    this.#looks += 1
    const { core } = life.driver
    const id = programId(this.#tenant, this.name)
    const stage = core.programs.get(id)?.stage.kind ?? 'gone'
    if (stage !== 'open') return this.#end(`program ${stage}`)
    if (this.#looks > LOOKS_MAX) return this.#cancel('gave up: too long')
    const nodes = core.graphs.get(id)?.nodes
    const known = (plan: NodePlan): GraphNode | undefined => nodes?.get(nodeId(plan.report.node))
    const untold = this.#plan.nodes.filter((plan) => !this.#told.has(plan) && !this.#dropped.has(plan))
    if (untold.length > 0 && !this.#telling) this.#tell(untold.slice(0, this.#part), ({ fork, report }) => (fork === null || core.threads.has(threadId(id, fork.from)))
      && report.parents.every(({ node }) => !this.#isByCall(node) || nodes?.has(nodeId(node)) === true))
    for (const plan of this.#told) this.#run(plan, known(plan))
    const isIdle = untold.length === 0 && !this.#telling && this.#errands.count === 0 && [...this.#lanes.values()].every(({ node }) => node === null)
    if (isIdle && [...this.#told].every((plan) => (known(plan)?.stage.kind ?? 'gone') !== 'open')) this.#finish()
  }

  /** Nodes that their calls declare are not told. Where a part is refused, it goes on node by node. */
  #tell(wished: readonly NodePlan[], isRipe: (plan: NodePlan) => boolean): void {
    const unripe = wished.findIndex((plan) => !isRipe(plan))
    const part = unripe < 0 ? wished : wished.slice(0, unripe)
    if (part.length === 0) return
    const reported = part.filter(({ byCall }) => !byCall)
    const report: GraphReport = {
      epoch: null, parent: null, outcomes: [], forks: reported.flatMap(({ fork }) => fork ?? []), nodes: reported.map((plan) => plan.report),
    }
    this.#telling = true
    this.#errands.do((life) => life.driver.report(this.#tenant, this.name, report), (reply) => {
      this.#telling = false
      if (reply.ok) for (const plan of part) this.#told.add(plan)
      else if (part.length === 1 && (NEVER.has(reply.code) || this.#neverTold(part[0]))) this.#dropped.add(part[0] as NodePlan)
      this.#part = reply.ok ? this.#plan.part : 1
    })
  }

  #isByCall(name: string): boolean {
    return this.#plan.nodes.find(({ report }) => report.node === name)?.byCall === true
  }

  /** It waits for a node that will not be told. */
  #neverTold(plan: NodePlan | undefined): boolean {
    return plan?.report.parents.some(({ node }) => [...this.#dropped].some(({ report }) => report.node === node)) === true
  }

  #run(plan: NodePlan, node: GraphNode | undefined): void {
    if (this.#begun.has(plan) || plan.report.kind === 'JOIN') return
    if (plan.call !== null) return this.#talkOf(plan, node)
    if (node?.stage.kind !== 'open' || node.parentsCommitted < neededOf(null, node.parents.length)) return
    this.#begun.add(plan)
    const fails = this.#world.faults.at('tool.fails', this.name)
    const outcome = fails === null ? 'completed' : fails.hit(800_000) ? 'failed' : 'cancelled'
    const outcomes = [{ node: plan.report.node, outcome, why: 'so it went' }] as const
    this.#world.events.after(plan.takesUs, () => {
      if (this.outcome !== null) return
      this.#errands.do((life) => life.driver.report(this.#tenant, this.name, { epoch: null, parent: null, forks: [], nodes: [], outcomes }), () => undefined)
    })
  }

  // ---------------------------------------------------------------- calls

  #talkOf(plan: NodePlan, node: GraphNode | undefined): void {
    const { report, call, thread, byCall } = plan
    if (call === null) return
    if (node !== undefined && node.stage.kind !== 'open') return void this.#begun.add(plan)
    const lane = this.#laneOf(plan)
    // Some calls come long before their parents have committed; what is alike in its thread is talked about in turn.
    if (lane.node !== null || (node === undefined && !byCall)) return
    this.#begun.add(plan)
    lane.node = plan
    lane.answering = false
    this.#ask(lane, plan, byCall ? report.parents.map((parent) => parent.node) : [])
    this.#disturb(plan, thread)
  }

  #laneOf({ thread, fork }: NodePlan): Lane {
    const found = this.#lanes.get(thread)
    if (found !== undefined) return found
    const { prefix } = this.#plan
    const pieces = (fork === null ? undefined : this.#lanes.get(fork.from)?.talk.pieces) ?? (prefix.tokens > 0 ? [prefix] : [])
    const talk = new Talk(this.#world, this.name, this.#tenant, pieces, {
      answered: ({ call, finish }) => this.#answered(lane, call, finish === 'tool_calls'),
      gaveUp: () => this.#gaveUp(lane),
    })
    const lane: Lane = { talk, node: null, answering: false }
    this.#lanes.set(thread, lane)
    return lane
  }

  #ask(lane: Lane, { report, call, thread }: NodePlan, parents: readonly string[]): void {
    if (call === null) return
    const { agent, priorityClass } = this.#plan
    lane.talk.ask({
      name: `${this.name} ${report.node}${lane.answering ? ' answered' : ''}`, call: lane.answering ? { ...call, then: 'end' } : call, priorityClass, deadlineUs: null,
      claims: {
        identity: { source: 'explicit', confidence: 100 }, program: this.name, thread, session: null, parent: null, epoch: null, final: false,
        kind: agent, node: lane.answering ? null : report.node, parents,
      },
    })
  }

  #answered(lane: Lane, call: CallId, forTool: boolean): void {
    const plan = lane.node
    if (plan?.call == null || this.outcome !== null) return
    if (!forTool) {
      lane.node = null
      return
    }
    this.#world.events.after(plan.call.waitUs, () => {
      if (this.outcome !== null || plan.call === null) return
      const goOn = (): void => {
        if (this.outcome !== null) return
        lane.answering = true
        this.#ask(lane, plan, [])
      }
      if (!hasEffect(plan.call.tool) || !plan.call.commits) return goOn()
      this.#errands.do((life) => life.driver.commitEffect(this.#tenant, this.name, toolCallOf(call), null), goOn)
    })
  }

  /** Its node will not be: whoever waits for it should know. */
  #gaveUp(lane: Lane): void {
    const plan = lane.node
    lane.node = null
    if (plan === null || this.outcome !== null) return
    this.#errands.do((life) => life.driver.cancelCall(this.#tenant, this.name, plan.report.node), () => undefined)
  }

  // ---------------------------------------------------------------- going wrong, and the end

  #disturb({ report }: NodePlan, thread: string): void {
    const { faults, events } = this.#world
    const soon = (how: Chance | null, act: () => void): void => {
      if (how !== null) events.after(how.tail(1_000, 5_000_000), () => { if (this.outcome === null) act() })
    }
    soon(faults.at('client.cancelCall', this.name), () => {
      const call = this.#lanes.get(thread)?.talk.call ?? report.node
      this.#errands.do((life) => life.driver.cancelCall(this.#tenant, this.name, call), () => undefined)
    })
    soon(faults.at('client.cancelThread', this.name), () => {
      this.#errands.do((life) => life.driver.cancelThread(this.#tenant, this.name, thread), () => undefined)
    })
    soon(faults.at('client.cancel', this.name), () => this.#cancel('cancelled'))
  }

  #cancel(outcome: string): void {
    const life = this.#world.current()
    if (life === null) return
    void life.driver.cancel(this.#tenant, this.name)
    this.#end(outcome)
  }

  #finish(): void {
    this.#errands.do((life) => life.driver.finish(this.#tenant, this.name), () => this.#end('done'))
  }

  #end(outcome: string): void {
    if (this.outcome !== null) return
    this.outcome = outcome
    this.#errands.stop()
    for (const { talk } of this.#lanes.values()) talk.stop()
    this.#world.ended(this)
  }
}

/** Codes with which a node is refused for good. */
const NEVER: ReadonlySet<string> = new Set(['parent_failed', 'join_unmeetable', 'node_closed', 'node_conflict', 'thread_cancelled', 'thread_exists', 'graph_cycle'])

const LOOK_US: { readonly low: Us; readonly high: Us } = { low: 50_000, high: 1_500_000 }
