/**
 * Owns what /metrics says. Counters are fed by facts as they happen, gauges are read from the live state when somebody
 * asks. A label is a class, a tenant, an engine or a choice: never a program, a session or a call, and never free text
 * beyond LABEL_VALUES_MAX.
 */
import { Counter, Gauge, Registry } from 'prom-client'
import type { Fact } from '../core/fact.ts'
import type { CoreState, IdentitySource, State, Tier } from '../core/state.ts'
import { SECOND_US, type Us } from '../core/units.ts'
import type { Gateway } from '../driver/gateway.ts'
import { levelsOf } from '../driver/line.ts'
import { isErrorCode } from '../protocol/errors.ts'
import type { IgnoredHeader } from './identity.ts'

/** Distinct values of a label that comes as text from elsewhere; what comes after is `other`. */
const LABEL_VALUES_MAX = 50

type Core = Readonly<CoreState>
const TIERS: readonly Tier[] = ['device', 'host']

export class DoorMetrics {
  readonly #registry = new Registry()
  readonly #unwatch: () => void
  readonly #known = new Map<string, Set<string>>()
  /** Recomputed tokens last reported by the attempt under way of a call: reports are totals of the attempt. */
  readonly #recomputed = new Map<string, number>()

  readonly #decisions = this.#counter('kv_decisions_total', 'Residency decisions, by choice', ['choice', 'performed'])
  readonly #recomputedTokens = this.#counter('recomputed_tokens_total', 'Tokens fed again because their KV had been evicted', [])
  readonly #copiedBytes = this.#counter('kv_copied_bytes_total', 'Bytes of KV moved, by the tier they came to', ['to'])
  readonly #copySeconds = this.#counter('kv_copy_seconds_total', 'Time spent moving KV, by the tier it came to', ['to'])
  readonly #movesFailed = this.#counter('kv_moves_failed_total', 'Moves of KV that failed; lost: the image was bad and is recomputed', ['lost'])
  readonly #discarded = this.#counter('kv_discarded_tokens_total', 'Tokens whose KV was dropped, by tier', ['tier'])
  readonly #callsEnded = this.#counter('calls_ended_total', 'Calls by their end: a finish reason, or the code of the error', ['end'])
  readonly #preempted = this.#counter('calls_preempted_total', 'Calls that had to make room while running', [])
  readonly #retried = this.#counter('call_retries_total', 'New attempts of calls', [])
  readonly #programsEnded = this.#counter('programs_ended_total', 'Programs by their end', ['end'])
  readonly #ignoredResults = this.#counter('results_ignored_total', 'Results that changed nothing, by why', ['input', 'why'])
  readonly #enginesLost = this.#counter('engines_lost_total', 'Losses of an engine', ['engine'])
  readonly #identities = this.#counter('requests_identified_total', 'Chat requests by the source of their identity', ['source'])
  readonly #ignoredHeaders = this.#counter('identity_headers_ignored_total', 'Identity headers that were not used, by why', ['header', 'why'])
  readonly #hangUps = this.#counter('clients_left_total', 'Clients that left before their answer was complete', ['stage'])
  readonly #readerSeconds = this.#counter('reader_wait_seconds_total', 'Time that answers waited for slow readers', [])

  /** `streams`: how many answers are under way at the door. */
  constructor(gateway: Gateway, snapshots: { readonly count: number; readonly lost: number }, streams: () => number) {
    this.#gauges(gateway)
    this.#gauge('snapshots', 'Snapshots kept', [], (gauge) => gauge.set(snapshots.count))
    this.#gauge('snapshots_lost', 'Snapshots that could not be read or made since the start', [], (gauge) => gauge.set(snapshots.lost))
    this.#gauge('answers_open', 'Answers under way at the door', [], (gauge) => gauge.set(streams()))
    this.#unwatch = gateway.watch(({ fact }) => this.#count(fact))
  }

  get contentType(): string { return this.#registry.contentType }

  text(): Promise<string> {
    return this.#registry.metrics()
  }

  close(): void {
    this.#unwatch()
  }

  // ---------------------------------------------------------------- what the door itself sees

  identified(source: IdentitySource, ignored: readonly IgnoredHeader[]): void {
    this.#identities.inc({ source })
    for (const { header, why } of ignored) this.#ignoredHeaders.inc({ header, why })
  }

  hungUp(stage: string): void {
    this.#hangUps.inc({ stage })
  }

  waitedForReader(ms: number): void {
    this.#readerSeconds.inc(ms / 1_000)
  }

  // ---------------------------------------------------------------- facts

  #count(fact: Fact): void {
    switch (fact.kind) {
      case 'kv.decided':
        this.#decisions.inc({ choice: fact.choice, performed: String(fact.performed) })
        break
      case 'kv.moved':
        this.#copiedBytes.inc({ to: fact.to }, fact.bytes)
        this.#copySeconds.inc({ to: fact.to }, fact.copyUs / SECOND_US)
        break
      case 'kv.move.failed':
        this.#movesFailed.inc({ lost: String(fact.sourceLost) })
        break
      case 'kv.discarded':
        this.#discarded.inc({ tier: fact.tier }, fact.tokens)
        break
      case 'program.completed':
        if (!fact.provisional) this.#programsEnded.inc({ end: 'completed' })
        break
      case 'program.closed':
      case 'program.cancelled':
      case 'program.failed':
        this.#programsEnded.inc({ end: fact.kind.slice('program.'.length) })
        break
      case 'result.ignored':
        this.#ignoredResults.inc({ input: fact.input, why: this.#bounded('why', fact.why) })
        break
      case 'engine.lost':
        this.#enginesLost.inc({ engine: fact.engine })
        break
      default:
        this.#countCall(fact)
    }
  }

  #countCall(fact: Fact): void {
    switch (fact.kind) {
      case 'call.scheduled':
        this.#recomputed.set(fact.call, 0)
        break
      case 'call.progressed':
      case 'call.paused':
        this.#recompute(fact.call, fact.report.recomputedTokens)
        break
      case 'call.preempted':
        this.#preempted.inc()
        break
      case 'call.retried':
        this.#retried.inc()
        break
      case 'call.completed':
        this.#recompute(fact.call, fact.report.recomputedTokens)
        this.#ended(fact.call, fact.finish)
        break
      case 'call.cancelled':
        this.#ended(fact.call, 'cancelled')
        break
      case 'call.refused':
      case 'call.failed':
        this.#ended(fact.call, isErrorCode(fact.code) ? fact.code : 'internal')
        break
      default:
    }
  }

  #recompute(call: string, total: number): void {
    const before = this.#recomputed.get(call) ?? 0
    if (total > before) this.#recomputedTokens.inc(total - before)
    this.#recomputed.set(call, Math.max(total, before))
  }

  #ended(call: string, end: string): void {
    this.#callsEnded.inc({ end })
    this.#recomputed.delete(call)
  }

  #bounded(label: string, value: string): string {
    const known = this.#known.get(label) ?? new Set()
    this.#known.set(label, known)
    if (known.size < LABEL_VALUES_MAX) known.add(value)
    return known.has(value) ? value : 'other'
  }

  // ---------------------------------------------------------------- live state

  #gauges(gateway: Gateway): void {
    const { core } = gateway
    this.#gauge('queue_calls', 'Ready calls, by model and level', ['model', 'level'], (gauge) => {
      for (const { model, level, calls } of levelsOf(core)) gauge.set({ model, level: String(level) }, calls)
    })
    this.#gauge('queue_longest_wait_seconds', 'Longest wait of a ready call', ['model', 'level'], (gauge) => {
      for (const { model, level, sinceUs } of levelsOf(core)) gauge.set({ model, level: String(level) }, (gateway.nowUs() - sinceUs) / SECOND_US)
    })
    this.#gauge('kv_suspended_bytes', 'KV of States that nobody runs, by tier', ['tier'], (gauge) => {
      for (const tier of TIERS) {
        gauge.set({ tier }, 0)
        for (const state of suspended(core, tier)) gauge.inc({ tier }, bytesIn(core, state, tier))
      }
    })
    this.#gauge('kv_suspended_oldest_seconds', 'Longest wait of an idle State, by tier', ['tier'], (gauge) => {
      for (const tier of TIERS) gauge.set({ tier }, Math.max(0, ...agesOf(core, tier, gateway.nowUs())) / SECOND_US)
    })
    this.#gauge('kv_suspended_mean_seconds', 'Mean wait of idle States, by tier', ['tier'], (gauge) => {
      for (const tier of TIERS) {
        const ages = agesOf(core, tier, gateway.nowUs())
        gauge.set({ tier }, ages.reduce((sum, age) => sum + age, 0) / Math.max(1, ages.length) / SECOND_US)
      }
    })
    this.#gauge('kv_host_bytes', 'Host memory for images', ['sort'], (gauge) => {
      const { totalBytes, ownedBytes, reservedBytes } = core.host
      gauge.set({ sort: 'owned' }, ownedBytes)
      gauge.set({ sort: 'reserved' }, reservedBytes)
      gauge.set({ sort: 'free' }, totalBytes - ownedBytes - reservedBytes)
    })
    this.#engineGauges(gateway)
    this.#tenantService(core)
    this.#gauge('programs', 'Programs in memory, by stage: open, ended (a call may go on), over', ['stage'], (gauge) => {
      gauge.set({ stage: 'open' }, core.programs.size - core.over.size - core.provisional.size)
      gauge.set({ stage: 'ended' }, core.provisional.size)
      gauge.set({ stage: 'over' }, core.over.size)
    })
  }

  #engineGauges(gateway: Gateway): void {
    const { core } = gateway
    this.#gauge('engine_stage', 'What an engine is doing: starting, joined, draining, drained, lost, crash-loop, refused', ['engine', 'stage'], (gauge) => {
      for (const { id, stage } of gateway.engines()) gauge.set({ engine: id, stage }, 1)
    })
    this.#gauge('engine_joined', 'Whether an engine can take calls', ['engine'], (gauge) => {
      for (const engine of core.engines.values()) gauge.set({ engine: engine.id }, engine.stage === 'joined' ? 1 : 0)
    })
    this.#gauge('engine_running_calls', 'Calls that run, by engine', ['engine'], (gauge) => {
      for (const engine of core.engines.values()) gauge.set({ engine: engine.id }, engine.running.size)
    })
    this.#gauge('engine_granules', 'Device memory in granules, by engine', ['engine', 'sort'], (gauge) => {
      for (const { id, capabilities: { memory }, ownedGranules, reservedGranules } of core.engines.values()) {
        if (memory === null) continue
        gauge.set({ engine: id, sort: 'owned' }, ownedGranules)
        gauge.set({ engine: id, sort: 'reserved' }, reservedGranules)
        const total = Math.floor(memory.cells / memory.granule)
        gauge.set({ engine: id, sort: 'free' }, total - ownedGranules - reservedGranules)
      }
    })
    this.#gauge('engine_sequences', 'Sequences of an engine, each of a State', ['engine', 'sort'], (gauge) => {
      for (const { id, capabilities: { memory }, sequencesUsed } of core.engines.values()) {
        if (memory === null) continue
        gauge.set({ engine: id, sort: 'used' }, sequencesUsed)
        gauge.set({ engine: id, sort: 'free' }, memory.sequences - sequencesUsed)
      }
    })
  }

  /** A counter, as ledgers never decrease (invariant 12); read from the ledgers, so that it is never a second truth. */
  #tenantService(core: Core): void {
    new Counter({
      name: 'entracte_tenant_service_seconds_total',
      help: 'Model execution by tenant; work: shares of busy time, resident: time in iterations',
      labelNames: ['tenant', 'sort', 'measure'],
      registers: [this.#registry],
      collect(): void {
        this.reset()
        for (const { id: tenant, service } of core.tenants.values()) {
          for (const sort of ['useful', 'retried', 'recomputed'] as const) {
            this.inc({ tenant, sort, measure: 'work' }, service[sort].workUs / SECOND_US)
            this.inc({ tenant, sort, measure: 'resident' }, service[sort].residentUs / SECOND_US)
          }
        }
      },
    })
  }

  #counter<Label extends string>(name: string, help: string, labelNames: readonly Label[]): Counter<Label> {
    return new Counter({ name: `entracte_${name}`, help, labelNames: [...labelNames], registers: [this.#registry] })
  }

  #gauge<Label extends string>(
    name: string, help: string, labelNames: readonly Label[], read: (gauge: Gauge<Label>) => void,
  ): void {
    new Gauge({
      name: `entracte_${name}`, help, labelNames: [...labelNames], registers: [this.#registry],
      collect(): void {
        this.reset()
        read(this)
      },
    })
  }
}

function suspended(core: Core, tier: Tier): readonly State[] {
  return [...core.states.values()].filter(({ residence }) => residence.kind === 'suspended' && residence.tier === tier)
}

const agesOf = (core: Core, tier: Tier, nowUs: Us): readonly Us[] =>
  suspended(core, tier).map((state) => nowUs - state.idleSinceUs)

/** On device the granules that a State keeps from others, on host the bytes of its image. */
function bytesIn(core: Core, state: State, tier: Tier): number {
  if (tier === 'host') return state.host?.bytes ?? 0
  if (state.device === null) return 0
  const capabilities = core.engines.get(state.device.engine)?.capabilities
  return state.device.granules * (capabilities?.memory?.granule ?? 0) * (capabilities?.kvBytesPerToken ?? 0)
}
