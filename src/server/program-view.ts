/**
 * Owns how a program looks from outside: the core's state in the words of the wire, of one tenant only. Reads and
 * changes nothing. What another tenant runs is shown as a number, never by name.
 */
import { must } from '../core/assert.ts'
import { isNamedBy, nodeId, programId, rawOf, type ProgramId, type TenantId, type ThreadId } from '../core/ids.ts'
import type { GraphNode } from '../core/graph/graph-state.ts'
import type { Call, CoreState, Program, Thread } from '../core/state.ts'
import type { Us } from '../core/units.ts'
import { lineOf, programsOf } from '../driver/line.ts'
import type { GraphView } from '../protocol/graph.ts'
import type { CallView, NodeView, ProgramDetail, ProgramView, StateView, WaitView } from '../protocol/program.ts'

type Core = Readonly<CoreState>

export function findProgram(core: Core, tenant: TenantId, raw: string): Program | null {
  return core.programs.get(programId(tenant, raw)) ?? null
}

export function viewProgram(core: Core, program: Program, nowUs: Us): ProgramView {
  const { stage } = program
  return {
    object: 'program',
    id: rawOf(program.id),
    session: program.session === null ? null : rawOf(program.session),
    parent: program.parent === null ? null : rawOf(program.parent),
    kind: program.kind,
    declared: program.declared,
    identity: program.identity,
    priorityClass: program.priorityClass,
    deadlineAtMs: program.deadlineUs === null ? null : Math.round((program.deadlineUs + core.wallOffsetUs) / 1_000),
    stage: {
      kind: stage.kind,
      ...(stage.kind === 'ended' ? { provisional: stage.provisional } : {}),
      ...(stage.kind === 'failed' ? { why: stage.why } : {}),
    },
    epoch: program.epoch,
    arrivedAtMs: Math.round((program.arrivedUs + core.wallOffsetUs) / 1_000),
    ageUs: Math.max(0, (stage.kind === 'open' ? nowUs : stage.atUs) - program.arrivedUs),
    callsTotal: program.calls.length,
    service: structuredClone(program.ledger),
    waits: stage.kind === 'open' ? threadsOf(core, program).flatMap((thread) => waitsOf(core, thread, nowUs)) : [],
  }
}

export function viewProgramDetail(core: Core, program: Program, nowUs: Us): ProgramDetail {
  return {
    ...viewProgram(core, program, nowUs),
    calls: program.calls.flatMap((id) => {
      const call = core.calls.get(id)
      return call === undefined ? [] : [viewCall(call)]
    }),
    states: threadsOf(core, program).flatMap((thread) => viewState(core, thread)),
    nodes: [...core.graphs.get(program.id)?.nodes.values() ?? []].map((node) => viewNode(node, program.id)),
  }
}

const threadsOf = (core: Core, program: Program): readonly Thread[] =>
  program.threads.flatMap((id) => core.threads.get(id) ?? [])

const threadName = (id: ThreadId, program: ProgramId): string => id.slice(program.length + 1)

function viewCall(call: Call): CallView {
  const { stage } = call
  return {
    id: call.id,
    thread: threadName(call.thread, call.program),
    model: call.model,
    stage: stage.kind,
    attempt: call.attempt,
    promptTokens: call.promptTokens,
    outputTokens: call.outputTokens,
    recomputedTokens: call.recomputedTokens,
    finish: stage.kind === 'committed' ? stage.finish : null,
    why: stage.kind === 'failed' ? stage.why : null,
  }
}

const viewNode = ({ id, kind, stage, thread, call, parents }: GraphNode, program: ProgramId): NodeView => ({
  id, kind, stage: stage.kind, why: 'why' in stage ? stage.why : null, thread: thread === null ? null : threadName(thread, program), call,
  parents: parents.map(({ from }) => from),
})

export function viewGraph(core: Core, program: Program): GraphView {
  const nodes = { open: 0, committed: 0, failed: 0, cancelled: 0 }
  for (const { stage } of core.graphs.get(program.id)?.nodes.values() ?? []) nodes[stage.kind] += 1
  return { object: 'graph', program: rawOf(program.id), nodes }
}

function viewState(core: Core, thread: Thread): readonly StateView[] {
  const state = thread.state === null ? undefined : core.states.get(thread.state)
  if (state === undefined) return []
  return [{
    thread: threadName(thread.id, thread.program),
    residence: state.residence.kind,
    tier: state.residence.kind === 'suspended' ? state.residence.tier : null,
    deviceTokens: state.device?.tokens ?? 0,
    hostBytes: state.host?.bytes ?? 0,
  }]
}

// ---------------------------------------------------------------- what it waits for

function waitsOf(core: Core, thread: Thread, nowUs: Us): readonly WaitView[] {
  const name = threadName(thread.id, thread.program)
  const waits: WaitView[] = []
  const interrupt = thread.interrupt === null ? undefined : core.interrupts.get(thread.interrupt)
  if (interrupt?.stage.kind === 'waiting') {
    waits.push({
      thread: name, call: interrupt.call, on: 'tool', forUs: nowUs - interrupt.startedUs,
      what: `the results of ${interrupt.toolCallIds.length} tool call(s) of ${interrupt.toolClass}`, behind: null,
    })
  }
  const active = thread.active === null ? undefined : core.calls.get(thread.active)
  if (active !== undefined) waits.push({ thread: name, call: active.id, ...waitOf(core, active, nowUs) })
  for (const id of thread.waiting) {
    const call = core.calls.get(id)
    if (call === undefined) continue
    waits.push({
      thread: name, call: id, on: 'thread', forUs: nowUs - call.arrivedUs,
      what: 'the call before it in its thread', behind: null,
    })
  }
  return waits
}

function waitOf(core: Core, call: Call, nowUs: Us): Pick<WaitView, 'on' | 'forUs' | 'what' | 'behind'> {
  const { stage } = call
  switch (stage.kind) {
    case 'arrived':
      return { on: 'measure', forUs: nowUs - call.arrivedUs, what: 'an engine to count its tokens', behind: null }
    case 'measured':
      return { on: 'thread', forUs: nowUs - call.arrivedUs, what: parentsOf(core, call), behind: null }
    case 'ready': {
      const queue = lineOf(core, call.model)
      const place = queue.indexOf(call.id)
      return {
        on: 'queue', forUs: nowUs - stage.sinceUs,
        what: `its turn, at place ${place + 1} of ${queue.length}, level ${call.level}`,
        behind: behind(core, call, queue.slice(0, Math.max(0, place))),
      }
    }
    case 'resuming':
      return { on: 'resume', forUs: nowUs - stage.sinceUs, what: `its State to be on ${stage.engine}`, behind: null }
    case 'running':
    case 'pausing':
      return { on: 'engine', forUs: nowUs - stage.sinceUs, what: `${stage.engine} to generate its answer`, behind: null }
    case 'detached':
      return { on: 'retry', forUs: nowUs - stage.sinceUs, what: 'its client to come back', behind: null }
    case 'committed':
    case 'cancelled':
    case 'failed':
      return { on: 'thread', forUs: nowUs - stage.atUs, what: 'its end to be settled', behind: null }
  }
}

const NO_NODE = nodeId('')

/** Of a declared graph, by name; else the call before it. */
function parentsOf(core: Core, call: Call): string {
  const nodes = core.graphs.get(call.program)?.nodes
  const waited = nodes?.get(call.node ?? NO_NODE)?.parents.map(({ from }) => nodes?.get(from)).filter((node) => node?.stage.kind === 'open') ?? []
  return waited.length === 0 ? 'its parents to commit' : `${waited.map((node) => `"${node?.id ?? ''}"`).join(', ')} to commit`
}

/** Who is served before it: calls ahead in its queue, and those that run on the engines of its model. */
function behind(core: Core, call: Call, ahead: readonly Call['id'][]): NonNullable<WaitView['behind']> {
  const engines = [...core.engines.values()].filter((engine) => engine.capabilities.models.includes(call.model))
  const running = engines.flatMap((engine) => [...engine.running])
  const { tenant } = must(core.programs, call.program)
  const others = programsOf(core, [...running, ...ahead]).filter((id) => id !== call.program)
  const ours = others.filter((id) => isNamedBy(id, tenant))
  return { programs: [...new Set(ours.map(rawOf))], others: others.length - ours.length }
}
