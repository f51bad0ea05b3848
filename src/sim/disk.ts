/**
 * Owns the store of the simulator: what outlives a crash (`Disk`) and what one life of the control plane writes to it
 * (`Store`): group commits that take time, that fail, that a crash loses or tears. What is torn is cut back to the end of
 * the last whole append, as a reader of a log does.
 */
import type { BodyId, MoveId, TenantId } from '../core/ids.ts'
import type { Logged } from '../core/fact.ts'
import type { Snapshot } from '../core/snapshot.ts'
import type { Bytes, Us } from '../core/units.ts'
import type { Bodies, FactLog, KvImages } from '../driver/ports.ts'
import { nextSnapshot } from '../driver/recover.ts'
import { Chance } from './chance.ts'
import type { ControlClock } from './control-clock.ts'
import type { Events } from './events.ts'
import type { Faults } from './faults.ts'
import type { Images } from './images.ts'

/** How long a flow fact or a body may wait. */
const FLOW_COMMIT_US: Us = 50_000

/** A fact as text: what replay sees has passed through it. */
export interface Line { readonly logged: Logged; readonly text: string }

type Op =
  | { readonly kind: 'facts'; readonly facts: readonly Line[]; readonly durable: () => void }
  | { readonly kind: 'body'; readonly id: BodyId; readonly bytes: Uint8Array | null }
  | { readonly kind: 'image'; readonly id: MoveId; readonly image: { readonly bytes: Bytes; readonly digest: string } | null }

export class Disk {
  facts: Line[] = []
  /** Newest first. */
  snapshots: readonly Snapshot[] = []
  readonly bodies = new Map<BodyId, Uint8Array>()
  readonly images = new Map<MoveId, { readonly bytes: Bytes; readonly digest: string }>()
  reign = 0

  /** Nobody will ever read the facts back: they are let go. */
  readonly forgets: boolean
  readonly #written: (facts: readonly Line[]) => void

  /** `written` hears of all facts that are durable, in the order of the log. */
  constructor(forgets: boolean, written: (facts: readonly Line[]) => void) {
    this.forgets = forgets
    this.#written = written
  }

  write(ops: readonly Op[]): void {
    for (const op of ops) {
      if (op.kind === 'facts') {
        this.#written(op.facts)
        if (!this.forgets) this.facts.push(...op.facts)
      }
      else if (op.kind === 'body') put(this.bodies, op.id, op.bytes)
      else put(this.images, op.id, op.image)
    }
  }

  factsAfter(afterSeq: number): readonly Logged[] {
    return this.facts.filter(({ logged }) => logged.seq > afterSeq).map(({ text }) => JSON.parse(text) as Logged)
  }

  /** Of what is on disk. */
  keepSnapshot(): void {
    const base = this.snapshots[0] ?? null
    const next = nextSnapshot(base, this.factsAfter(base?.seq ?? 0))
    if (next.seq === base?.seq) return
    this.snapshots = [next, ...this.snapshots].slice(0, SNAPSHOTS_KEPT)
    const oldest = this.snapshots[SNAPSHOTS_KEPT - 1]
    if (oldest !== undefined) this.facts = this.facts.filter(({ logged }) => logged.seq > oldest.seq)
  }
}

/** Snapshots kept; facts older than the oldest of them go. */
const SNAPSHOTS_KEPT = 2

function put<K, V>(map: Map<K, V>, key: K, value: V | null): void {
  if (value === null) map.delete(key)
  else map.set(key, value)
}

export interface StoreWorld {
  readonly events: Events
  readonly faults: Faults
  readonly images: Images
  readonly seed: number
}

/** The life that writes. */
interface Writer {
  readonly clock: ControlClock
  /** A call of it is about to have an effect; false: the life ended here. */
  mayAct(): boolean
  /** Facts were decided, in this order. */
  noted(facts: readonly Line[]): void
  storeFailed(): void
}

export class Store {
  readonly log: FactLog
  readonly bodies: Bodies
  readonly images: KvImages
  readonly #world: StoreWorld
  readonly #disk: Disk
  readonly #clock: ControlClock
  readonly #writer: Writer
  readonly #chance: Chance
  readonly #view: Map<BodyId, Uint8Array>
  readonly #imageView: Map<MoveId, { readonly bytes: Bytes; readonly digest: string }>
  #waiting: Op[] = []
  #writing: Op[] | null = null
  /** Grows with each commit begun: one that was overtaken by a flush comes to nothing. */
  #commit = 0
  #cancelFlow: (() => void) | null = null
  #failed = false

  constructor(world: StoreWorld, disk: Disk, writer: Writer) {
    this.#world = world
    this.#disk = disk
    this.#clock = writer.clock
    this.#writer = writer
    this.#chance = new Chance(world.seed, `store of reign ${disk.reign + 1}`)
    this.#view = new Map(disk.bodies)
    this.#imageView = new Map(disk.images)
    this.log = {
      append: (facts, barrier, durable) => {
        const lines = facts.map((logged) => ({ logged, text: disk.forgets ? '' : JSON.stringify(logged) }))
        writer.noted(lines)
        this.#add({ kind: 'facts', facts: lines, durable }, barrier)
      },
      read: (afterSeq = 0) => disk.factsAfter(afterSeq),
      snapshots: () => disk.snapshots,
      snapshot: () => this.#snapshot(),
      nextReign: () => ++disk.reign,
    }
    this.bodies = {
      put: (id: BodyId, _tenant: TenantId, bytes) => this.#setBody(id, bytes),
      get: (id) => this.#view.get(id) ?? null,
      drop: (id) => { if (this.#view.has(id)) this.#setBody(id, null) },
      keepOnly: (isNeeded) => { for (const id of [...this.#view.keys()]) if (!isNeeded(id)) this.#setBody(id, null) },
    }
    this.images = {
      path: (image) => `image/${image}`,
      keep: (image, bytes, digest) => this.#setImage(image, { bytes, digest }),
      drop: (image) => {
        this.#world.images.delete(`image/${image}`)
        this.#setImage(image, null)
      },
      verify: () => Promise.resolve(this.#verify()),
    }
  }

  /** Bodies kept, by name. */
  get kept(): readonly string[] {
    return [...this.#view.keys(), ...this.#imageView.keys()]
  }

  /** Nothing it writes from now on is kept: another reign has the log. */
  fence(): void {
    this.#fail()
  }

  /** As when the power goes: what waits is lost, what is being written is there, torn, or not. */
  crash(): void {
    const writing = this.#writing ?? []
    this.#waiting = []
    this.#writing = null
    if (writing.length === 0) return
    const torn = this.#world.faults.at('store.torn', 'disk')
    const kept = torn === null ? (this.#chance.hit(500_000) ? writing.length : 0) : torn.below(writing.length + 1)
    this.#disk.write(writing.slice(0, wholeAppends(writing, kept)))
  }

  #setBody(id: BodyId, bytes: Uint8Array | null): void {
    if (!this.#writer.mayAct()) return
    put(this.#view, id, bytes)
    this.#add({ kind: 'body', id, bytes }, false)
  }

  #setImage(id: MoveId, image: { readonly bytes: Bytes; readonly digest: string } | null): void {
    if (!this.#writer.mayAct()) return
    put(this.#imageView, id, image)
    this.#add({ kind: 'image', id, image }, false)
  }

  #add(op: Op, urgent: boolean): void {
    if (this.#failed || !this.#writer.mayAct()) return
    this.#waiting.push(op)
    if (urgent) this.#begin()
    else this.#cancelFlow ??= this.#clock.at(this.#clock.nowUs() + FLOW_COMMIT_US, () => this.#begin())
  }

  /** One commit at a time; what comes meanwhile is the next. */
  #begin(): void {
    this.#cancelFlow?.()
    this.#cancelFlow = null
    if (this.#writing !== null || this.#failed || this.#waiting.length === 0) return
    // What is put together in one turn is committed together: the turn ends first.
    this.#writing = []
    this.#commit += 1
    const commit = this.#commit
    this.#clock.soon(() => {
      if (commit !== this.#commit) return
      this.#writing = this.#waiting
      this.#waiting = []
      const slow = this.#world.faults.at('store.slow', 'disk')
      const us = this.#chance.between(300, 1_500) + (slow?.tail(10_000, 3_000_000) ?? 0)
      this.#clock.at(this.#clock.nowUs() + us, () => { if (commit === this.#commit) this.#written() })
    })
  }

  #written(): void {
    const ops = this.#writing ?? []
    if (this.#world.faults.at('store.fail', 'disk') !== null) return this.#fail()
    if (this.#failed) return
    this.#writing = null
    this.#disk.write(ops)
    if (this.#waiting.some(({ kind }) => kind === 'facts')) this.#begin()
    else if (this.#waiting.length > 0) this.#cancelFlow ??= this.#clock.at(this.#clock.nowUs() + FLOW_COMMIT_US, () => this.#begin())
    for (const op of ops) if (op.kind === 'facts' && this.#writer.mayAct()) op.durable()
  }

  /** It is made beside what goes on, from what is on disk by then. */
  #snapshot(): void {
    if (this.#failed || !this.#writer.mayAct()) return
    this.#clock.at(this.#clock.nowUs() + this.#chance.between(1_000, 50_000), () => { if (!this.#failed && this.#writer.mayAct()) this.#disk.keepSnapshot() })
  }

  #fail(): void {
    if (this.#failed) return
    this.#failed = true
    this.#waiting = []
    this.#writing = null
    this.#clock.soon(() => this.#writer.storeFailed())
  }

  /** Images whose file is there and whole; every other file goes. */
  #verify(): MoveId[] {
    const good: MoveId[] = []
    for (const [id, { digest }] of [...this.#imageView]) {
      if (this.#world.images.get(`image/${id}`)?.kv.checksum() === digest) good.push(id)
      else this.images.drop(id)
    }
    const paths = new Set(good.map((id) => `image/${id}`))
    for (const path of this.#world.images.keys()) if (!paths.has(path)) this.#world.images.delete(path)
    return good
  }
}

function wholeAppends(ops: readonly Op[], count: number): number {
  for (let end = count; end > 0; end -= 1) if (ops[end - 1]?.kind === 'facts') return end
  return 0
}
