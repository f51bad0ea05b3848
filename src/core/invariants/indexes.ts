/**
 * Owns the law that an index says what a scan would: queues by band, tenant and key, and their counts; who is idle, moving,
 * resuming or pausing on an engine; who is on host; which programs are over. A heap is a heap, and its floor and root are
 * what shares are lifted to.
 */
import { readySince } from '../queue/queue.ts'
import { isBetter, keyAt, type Heap, type Key } from '../queue/heap.ts'
import { keyOfCall, keyOfShare } from '../queue/tenants.ts'
import type { Call, CoreState, Engine } from '../state.ts'
import { law } from './law.ts'

export function checkIndexes(core: Readonly<CoreState>): void {
  for (const [model, queue] of core.queues) checkQueue(core, model, queue)
  for (const engine of core.engines.values()) checkEngine(core, engine)
  same(core.hosted, [...core.states.values()].filter(({ host, residence }) => host !== null && residence.kind === 'suspended').map(({ id }) => id), 'States on host')
  const over = [...core.programs.values()].filter(({ stage }) => stage.kind !== 'open' && !(stage.kind === 'ended' && stage.provisional))
  same(core.over, over.map(({ id }) => id), 'programs that are over')
  const detached = [...core.calls.values()].filter(({ stage }) => stage.kind === 'detached')
  same(core.detached, detached.map(({ id }) => id), 'calls whose client is gone')
  const provisional = [...core.programs.values()].filter(({ stage }) => stage.kind === 'ended' && stage.provisional)
  same(core.provisional, provisional.map(({ id }) => id), 'programs that have ended and may be reopened')
  const open = new Map<string, number>()
  for (const { program, stage } of core.calls.values()) {
    if (stage.kind !== 'committed' && stage.kind !== 'cancelled' && stage.kind !== 'failed') open.set(program, (open.get(program) ?? 0) + 1)
  }
  for (const { id, openCalls } of core.programs.values()) {
    law(14, openCalls === (open.get(id) ?? 0), () => `${id} counts ${openCalls} open calls and has ${open.get(id) ?? 0}`)
  }
}

type Queue = CoreState['queues'] extends Map<string, infer Q> ? Q : never

function checkQueue(core: Readonly<CoreState>, model: string, queue: Queue): void {
  let size = 0
  for (const { band, size: inBand, tenants } of queue.bands) {
    let found = 0
    for (const share of tenants.shares.values()) {
      const { tenant, calls } = share
      checkHeap(calls, `${model} ${band} ${tenant}`)
      found += calls.ids.length
      const waits = calls.ids.length > 0
      law(2, tenants.waiting.places.has(tenant) === waits, () => `${tenant} has ${calls.ids.length} calls in ${model} ${band} and does ${waits ? 'not ' : ''}wait`)
      law(2, !waits || isKeyOf(tenants.waiting, tenant, keyOfShare(share)), () => `${tenant} waits in ${model} ${band} with an older virtual time`)
      for (const id of calls.ids) {
        const call = core.calls.get(id)
        law(2, call !== undefined && isOf(call, model, band, tenant) && isKeyOf(calls, id, keyOfCall({ ...call, sinceUs: readySince(call) })),
          () => `${id} stands in ${model} ${band} ${tenant} with a key that is not its own`)
      }
    }
    checkHeap(tenants.waiting, `${model} ${band}`)
    law(2, found === inBand, () => `${model} ${band} counts ${inBand} calls and has ${found}`)
    size += found
  }
  law(2, size === queue.size, () => `${model} counts ${queue.size} calls and has ${size}`)
}

const isOf = (call: Call, model: string, band: string, tenant: string): boolean =>
  call.model === model && call.band === band && call.payer === tenant

const isKeyOf = <Id extends string>(heap: Heap<Id>, id: Id, key: Key): boolean =>
  keyAt(heap, heap.places.get(id) ?? -1)?.every((number, at) => number === key[at]) === true

function checkHeap(heap: Heap<string>, what: string): void {
  law(2, heap.places.size === heap.ids.length && heap.numbers.length === heap.ids.length * heap.width,
    () => `the heap of ${what} has ${heap.ids.length} ids, ${heap.numbers.length} numbers and ${heap.places.size} places`)
  for (const [place, id] of heap.ids.entries()) {
    law(2, heap.places.get(id) === place, () => `${id} is not where the heap of ${what} says`)
    law(2, place === 0 || isBetter(heap, (place - 1) >> 1, place), () => `${id} lies below a worse one in the heap of ${what}`)
  }
}

function checkEngine(core: Readonly<CoreState>, engine: Engine): void {
  const here = [...core.states.values()].filter(({ device }) => device?.engine === engine.id)
  const moves = [...core.moves.values()].filter((move) => move.engine === engine.id)
  const pausing = [...core.calls.values()].filter(({ stage }) => stage.kind === 'pausing' && stage.engine === engine.id)
  same(engine.idle, here.filter(({ residence }) => residence.kind === 'suspended').map(({ id }) => id), `idle States of ${engine.id}`)
  same(engine.moves, moves.map(({ id }) => id), `moves of ${engine.id}`)
  same(engine.pausing, pausing.map(({ id }) => id), `pausing calls of ${engine.id}`)
  law(14, [...engine.cramped].every((id) => engine.running.has(id)), () => `${engine.id} withholds a grant from a call that does not run there`)
  const resuming = moves.filter(({ forCall }) => forCall !== null).length
  law(2, engine.resuming === resuming, () => `${engine.id} counts ${engine.resuming} States on their way to a call and has ${resuming}`)
}

function same(index: ReadonlySet<string>, scan: readonly string[], what: string): void {
  law(14, index.size === scan.length && scan.every((id) => index.has(id)), () => `the index of ${what} has ${[...index].join(' ')}, a scan ${scan.join(' ')}`)
}
