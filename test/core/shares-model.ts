/**
 * A model of fairness: what each class band and each tenant in it was charged, found by going through the list of facts
 * from its beginning, with plain lists of who waits. Holding KV is left out: it is for worlds in which that costs nothing.
 */
import type { Fact, Logged } from '../../src/core/fact.ts'
import type { Ledger } from '../../src/core/state.ts'

interface Share { virtual: number; floor: number; weight: number; readonly waiting: Set<string> }
interface Charged { readonly band: string; readonly payer: string; prepaidUs: number; readonly reported: Map<string, number> }

export class SharesModel {
  /** Of each band, and of each tenant in it (`band tenant`). */
  readonly shares = new Map<string, Share>()
  readonly #calls = new Map<string, Charged>()
  readonly #weights = new Map<string, number>()
  #floor = 0

  constructor(facts: readonly Logged[]) {
    for (const { fact } of facts) this.#hear(fact)
  }

  /** Of a band, or of a tenant in one: thousandths of a microsecond, over its weight. */
  virtualOf(name: string): number {
    return this.shares.get(name)?.virtual ?? 0
  }

  #hear(fact: Fact): void {
    if (fact.kind === 'tenant.weighed') this.#weights.set(fact.tenant, fact.weight)
    if (fact.kind === 'shares.priced') for (const [band, weight] of Object.entries(fact.prices.bands)) this.#weights.set(band, weight)
    if (fact.kind === 'call.arrived') this.#calls.set(fact.call, { band: fact.band, payer: fact.payer, prepaidUs: 0, reported: new Map() })
    const id = fact.kind === 'kv.onboard.begun' ? fact.forCall : 'call' in fact ? fact.call : null
    const call = this.#calls.get(id ?? '')
    if (call === undefined || id === null) return
    switch (fact.kind) {
      case 'call.ready': return this.#join(call, id)
      case 'kv.onboard.begun': return this.#start(call, id, fact.expectedWorkUs)
      case 'call.scheduled':
        call.reported.clear()
        return this.#start(call, id, fact.expectedWorkUs)
      case 'call.progressed': return this.#report(call, fact.report.service)
      case 'call.paused': case 'call.completed':
        this.#report(call, fact.report.service)
        return this.#leave(call, id)
      case 'call.retried': case 'call.detached': case 'call.cancelled': case 'call.failed': return this.#leave(call, id)
      default:
    }
  }

  #of(name: string, weight: string, floor: number): Share {
    const known = this.shares.get(name)
    if (known !== undefined) return known
    const made: Share = { virtual: floor, floor: 0, weight: this.#weights.get(weight) ?? 1, waiting: new Set() }
    this.shares.set(name, made)
    return made
  }

  #bandOf = ({ band }: Charged): Share => this.#of(band, band, 0)
  #tenantOf = (call: Charged): Share => this.#of(`${call.band} ${call.payer}`, call.payer, this.#bandOf(call).floor)

  /** Who comes back with nothing waiting is lifted to the floor. */
  #join(call: Charged, id: string): void {
    this.#leave(call, id)
    const band = this.#bandOf(call)
    const tenant = this.#tenantOf(call)
    if (band.waiting.size === 0) band.virtual = Math.max(band.virtual, this.#floor)
    if (tenant.waiting.size === 0) tenant.virtual = Math.max(tenant.virtual, band.floor)
    band.waiting.add(id)
    tenant.waiting.add(id)
  }

  /** The floors are the smallest of those that wait, the one that starts among them; then it pays ahead. */
  #start(call: Charged, id: string, expectedUs: number): void {
    const band = this.#bandOf(call)
    if (band.waiting.has(id)) {
      const bands = [...this.shares].filter(([name, { waiting }]) => !name.includes(' ') && waiting.size > 0).map(([, { virtual }]) => virtual)
      const tenants = [...this.shares].filter(([name, { waiting }]) => name.startsWith(`${call.band} `) && waiting.size > 0).map(([, { virtual }]) => virtual)
      this.#floor = Math.max(this.#floor, Math.min(...bands))
      band.floor = Math.max(band.floor, Math.min(...tenants))
    }
    this.#leave(call, id, expectedUs)
  }

  #leave(call: Charged, id: string, prepayUs = 0): void {
    this.#bandOf(call).waiting.delete(id)
    this.shares.get(`${call.band} ${call.payer}`)?.waiting.delete(id)
    this.#charge(call, prepayUs - call.prepaidUs)
    call.prepaidUs = prepayUs
  }

  #report(call: Charged, service: Ledger): void {
    let grownUs = 0
    for (const [part, { workUs }] of Object.entries(service)) {
      const beforeUs = call.reported.get(part) ?? 0
      grownUs += Math.max(0, workUs - beforeUs)
      call.reported.set(part, Math.max(beforeUs, workUs))
    }
    const paidUs = Math.min(grownUs, call.prepaidUs)
    call.prepaidUs -= paidUs
    this.#charge(call, grownUs - paidUs)
  }

  #charge(call: Charged, us: number): void {
    if (us === 0) return
    for (const share of [this.#bandOf(call), this.#tenantOf(call)]) share.virtual += Math.round((us * 1_000) / share.weight)
  }
}
