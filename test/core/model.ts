/**
 * A model of READY, of order and of ledgers: slow, and obviously right. It keeps nothing but the list of facts, and finds
 * every answer by going through all of them again. It knows no stage, no index and no heap of the core.
 */
import type { CoreConfig } from '../../src/core/config.ts'
import type { Fact, Logged } from '../../src/core/fact.ts'
import type { Ledger } from '../../src/core/state.ts'

type Arrived = Extract<Fact, { kind: 'call.arrived' }>
type Started = Extract<Fact, { kind: 'program.started' }>

interface Node { parents: readonly string[]; needed: number; stage: string }

/** What the list says of one call. */
interface Told {
  readonly arrived: Arrived
  readonly seq: number
  /** Of its program's declared graph. */
  node: string | null
  measured: boolean
  /** Where it is: in line, on an engine, on its way to one, without a client, or over. */
  at: 'line' | 'engine' | 'way' | 'away' | 'over'
  committed: boolean
  /** Service by stint on an engine; wasted ones too. */
  readonly stints: { service: Ledger; wasted: boolean }[]
  /** Sum of its program's ended calls, and the longest path through it, when it first became ready. */
  inherited: { doneUs: number; pathUs: number } | null
  promotedAtUs: number | null
  /** Its key in the queue, as of when it last became ready. */
  key: { level: number; tie: number }
}

const LEDGER = (): Ledger => ({ useful: { residentUs: 0, workUs: 0 }, retried: { residentUs: 0, workUs: 0 }, recomputed: { residentUs: 0, workUs: 0 } })
const PARTS = ['useful', 'retried', 'recomputed'] as const
const FIELDS = ['residentUs', 'workUs'] as const

/** All that the list says, told again from its beginning. */
export class Model {
  readonly #config: CoreConfig
  readonly calls = new Map<string, Told>()
  readonly #programs = new Map<string, { fact: Started; seq: number; open: boolean; epoch: number; parent: string | null }>()
  readonly #nodes = new Map<string, Node>()
  readonly #moves = new Map<string, string | null>()

  constructor(config: CoreConfig, facts: readonly Logged[]) {
    this.#config = config
    for (const { fact, seq } of facts) this.#hear(fact, seq)
  }

  /** Calls that may run now and do not, by the definition: nothing that the core decided is asked. */
  ready(): string[] {
    return [...this.calls.values()].filter((call) => this.#isReady(call)).map(({ arrived }) => arrived.call).sort()
  }

  /** Keys of the ready calls of one class and tenant, the best first: the whole order inside a share. */
  inShare(band: string, payer: string): string[] {
    return [...this.calls.values()]
      .filter((call) => call.at === 'line' && call.arrived.band === band && call.arrived.payer === payer && this.#isReady(call))
      .sort((a, b) => a.key.level - b.key.level || a.key.tie - b.key.tie || a.seq - b.seq)
      .map(({ arrived }) => arrived.call)
  }

  ledgerOf(program: string): Ledger {
    const sum = LEDGER()
    for (const call of this.calls.values()) {
      if (call.arrived.program !== program) continue
      for (const { service, wasted } of call.stints) {
        for (const field of FIELDS) {
          sum[wasted ? 'retried' : 'useful'][field] += service.useful[field]
          sum.retried[field] += service.retried[field]
          sum.recomputed[field] += service.recomputed[field]
        }
      }
    }
    return sum
  }

  // ---------------------------------------------------------------- READY

  #isReady(call: Told): boolean {
    const program = this.#programs.get(call.arrived.program)
    if (call.at !== 'line' || !call.measured || program?.open !== true || program.epoch !== call.arrived.epoch) return false
    const before = [...this.calls.values()].filter((other) => other.arrived.thread === call.arrived.thread && other.seq < call.seq)
    if (before.some(({ at }) => at !== 'over')) return false
    if (!call.arrived.parents.every((parent) => this.calls.get(parent)?.committed)) return false
    const node = this.#nodeOf(call)
    return node === undefined || node.parents.filter((parent) => this.#nodes.get(`${call.arrived.program} ${parent}`)?.stage === 'committed').length >= node.needed
  }

  #nodeOf({ arrived, node }: Told): Node | undefined {
    return node === null ? undefined : this.#nodes.get(`${arrived.program} ${node}`)
  }

  // ---------------------------------------------------------------- order

  #keyOf(call: Told): { level: number; tie: number } {
    const { order } = this.#config
    if (order === 'fcfs-program') return { level: 0, tie: this.#programs.get(call.arrived.program)?.seq ?? 0 }
    if (order === 'fcfs') return { level: 0, tie: call.seq }
    const ownUs = ownOf(call)
    const startUs = order === 'mlfq' ? 0 : order === 'plas' ? call.inherited?.doneUs ?? 0 : call.inherited?.pathUs ?? 0
    const level = call.promotedAtUs === null ? this.#below(this.#below(0, startUs), ownUs) : this.#below(0, ownUs - call.promotedAtUs)
    return { level, tie: call.seq }
  }

  /** The level `served` takes one down to: whole quanta of `levelQuantumUs * 2^level`, counted up one by one. */
  #below(from: number, servedUs: number): number {
    const { levelQuantumUs, levelCount } = this.#config
    let usedUs = 0
    for (let level = from; level < levelCount - 1; level += 1) {
      usedUs += levelQuantumUs * 2 ** level
      if (servedUs < usedUs) return level
    }
    return levelCount - 1
  }

  #rootOf(program: string): string {
    const parent = this.#programs.get(program)?.parent ?? null
    return parent === null ? program : this.#rootOf(parent)
  }

  /** Over all ended calls of its root: their sum, and the longest of what each inherited and was served itself. */
  #standing(program: string): { doneUs: number; pathUs: number } {
    const root = this.#rootOf(program)
    const ended = [...this.calls.values()].filter((call) => call.at === 'over' && this.#rootOf(call.arrived.program) === root)
    return {
      doneUs: ended.reduce((sum, call) => sum + ownOf(call), 0),
      pathUs: Math.max(0, ...ended.map((call) => (call.inherited?.pathUs ?? 0) + ownOf(call))),
    }
  }

  // ---------------------------------------------------------------- the list

  #hear(fact: Fact, seq: number): void {
    if (fact.kind === 'call.arrived') {
      this.calls.set(fact.call, {
        arrived: fact, seq, node: fact.node, measured: false, at: 'line', committed: false, stints: [], inherited: null, promotedAtUs: null, key: { level: 0, tie: 0 },
      })
    } else if (fact.kind.startsWith('call.') && 'call' in fact && fact.call !== null) {
      const call = this.calls.get(fact.call)
      if (call !== undefined) this.#hearCall(call, fact)
    } else this.#hearOther(fact, seq)
    const ended = fact.kind === 'call.completed' || fact.kind === 'call.failed' ? this.calls.get(fact.call) : undefined
    const node = ended === undefined ? undefined : this.#nodeOf(ended)
    if (node?.stage === 'open') node.stage = fact.kind === 'call.completed' ? 'committed' : 'failed'
  }

  #hearCall(call: Told, fact: Fact): void {
    switch (fact.kind) {
      case 'call.measured': call.measured = true; return
      case 'call.ready':
        call.at = 'line'
        call.inherited ??= this.#standing(call.arrived.program)
        call.key = this.#keyOf(call)
        return
      case 'call.promoted':
        call.promotedAtUs = ownOf(call)
        call.key = { level: 0, tie: call.key.tie }
        return
      case 'call.scheduled':
        call.at = 'engine'
        call.stints.push({ service: LEDGER(), wasted: false })
        return
      case 'call.progressed': return report(call, fact.report.service)
      case 'call.paused': report(call, fact.report.service); call.at = 'line'; return
      case 'call.retried': waste(call); call.at = 'line'; return
      case 'call.detached': call.at = 'away'; return
      case 'call.completed': report(call, fact.report.service); call.at = 'over'; call.committed = true; return
      case 'call.failed': waste(call); call.at = 'over'; return
      case 'call.cancelled': call.at = 'over'; return
      default:
    }
  }

  #hearOther(fact: Fact, seq: number): void {
    switch (fact.kind) {
      case 'program.started':
        this.#programs.set(fact.program, { fact, seq, open: true, epoch: 1, parent: fact.parent })
        return
      case 'program.linked': return this.#change(fact.program, fact.parent === null ? {} : { parent: fact.parent })
      case 'program.reopened': return this.#change(fact.program, { open: true })
      case 'program.completed': case 'program.closed': case 'program.failed': return this.#change(fact.program, { open: false })
      case 'program.cancelled': return this.#change(fact.program, { open: false, epoch: fact.epoch })
      case 'graph.reported':
        for (const { node, parents, join, call } of fact.nodes) {
          const needed = join?.need.kind === 'any' ? 1 : join?.need.kind === 'partial' ? join.need.atLeast : parents.length
          const was = this.calls.get(call ?? '')
          if (was !== undefined) was.node = node
          const stage = was?.at !== 'over' ? 'open' : was.committed ? 'committed' : 'ended'
          this.#nodes.set(`${fact.program} ${node}`, { parents: parents.map(({ from }) => from), needed, stage })
        }
        for (const { node, parents } of fact.grown) {
          const grown = this.#nodes.get(`${fact.program} ${node}`)
          if (grown === undefined) continue
          grown.needed += grown.needed === grown.parents.length ? parents.length : 0
          grown.parents = [...grown.parents, ...parents.map(({ from }) => from)]
        }
        return
      case 'node.committed': case 'thread.joined': case 'node.failed': case 'node.cancelled': {
        const node = this.#nodes.get(`${fact.program} ${fact.node}`)
        if (node?.stage === 'open') node.stage = fact.kind === 'node.committed' || fact.kind === 'thread.joined' ? 'committed' : 'ended'
        return
      }
      case 'kv.onboard.begun': {
        this.#moves.set(fact.move, fact.forCall)
        const call = this.calls.get(fact.forCall ?? '')
        if (call !== undefined) call.at = 'way'
        return
      }
      case 'kv.move.failed': {
        const call = this.calls.get(this.#moves.get(fact.move) ?? '')
        if (call?.at === 'way') call.at = 'line'
        return
      }
      default:
    }
  }

  #change(program: string, more: object): void {
    Object.assign(this.#programs.get(program) ?? {}, more)
  }
}

/** Useful and retried, of all stints. */
const ownOf = (call: Told): number => call.stints.reduce((sum, { service }) => sum + service.useful.residentUs + service.retried.residentUs, 0)

/** Reports are totals: of what two say, the larger is right. */
function report(call: Told, said: Ledger): void {
  const stint = call.stints.at(-1)
  if (stint === undefined) return
  for (const part of PARTS) for (const field of FIELDS) stint.service[part][field] = Math.max(stint.service[part][field], said[part][field])
}

function waste(call: Told): void {
  const stint = call.stints.at(-1)
  if (stint !== undefined) stint.wasted = true
}
