/**
 * Owns the law that an index says what a scan would: queues by band, tenant and key, and their counts; who is idle, moving,
 * resuming or pausing on an engine; who is on host; which programs are over. A heap is a heap, and its floor and root are
 * what shares are lifted to.
 */
import { byKey, byVirtual } from '../queue/tenants.ts'
import type { Compare, Heap } from '../queue/heap.ts'
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
    for (const { tenant, calls, virtual, seq } of tenants.shares.values()) {
      checkHeap(calls, byKey, `${model} ${band} ${tenant}`)
      found += calls.entries.length
      const waits = calls.entries.length > 0
      law(2, tenants.waiting.places.has(tenant) === waits, () => `${tenant} has ${calls.entries.length} calls in ${model} ${band} and does ${waits ? 'not ' : ''}wait`)
      const entry = tenants.waiting.entries[tenants.waiting.places.get(tenant) ?? -1]
      law(2, entry === undefined || (entry.virtual === virtual && entry.seq === seq), () => `${tenant} waits in ${model} ${band} with an older virtual time`)
      for (const { id, level, tie, seq: arrival } of calls.entries) {
        const call = core.calls.get(id)
        law(2, call !== undefined && isOf(call, model, band, tenant) && call.level === level && call.tie === tie && call.seq === arrival,
          () => `${id} stands in ${model} ${band} ${tenant} with a key that is not its own`)
      }
    }
    checkHeap(tenants.waiting, byVirtual, `${model} ${band}`)
    law(2, found === inBand, () => `${model} ${band} counts ${inBand} calls and has ${found}`)
    size += found
  }
  law(2, size === queue.size, () => `${model} counts ${queue.size} calls and has ${size}`)
}

const isOf = (call: Call, model: string, band: string, tenant: string): boolean =>
  call.model === model && call.band === band && call.payer === tenant

function checkHeap<T extends { readonly id: string }>(heap: Heap<T>, compare: Compare<T>, what: string): void {
  law(2, heap.places.size === heap.entries.length, () => `the heap of ${what} has ${heap.entries.length} entries and ${heap.places.size} places`)
  for (const [place, entry] of heap.entries.entries()) {
    const parent = heap.entries[(place - 1) >> 1]
    law(2, heap.places.get(entry.id) === place, () => `${entry.id} is not where the heap of ${what} says`)
    law(2, place === 0 || (parent !== undefined && compare(parent, entry) < 0), () => `${entry.id} lies below a worse one in the heap of ${what}`)
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
