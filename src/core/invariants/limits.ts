/**
 * Owns the law of limits (14): what is kept is bounded by a named limit, or by something that is; nothing is kept of what
 * is gone; and whoever waits has a timer that ends the wait, and no timer outlives what it waits for.
 */
import { listOf } from '../digests.ts'
import { areParentsCommitted } from '../graph/graph-read.ts'
import type { CallId, InterruptId, ProgramId, StateId } from '../ids.ts'
import type { CoreState } from '../state.ts'
import { law, type Seen } from './law.ts'

export function checkLimits(core: Readonly<CoreState>, seen: Seen): void {
  const { config } = core
  // A new reign may bring lower limits: what is above one drains, and does not grow.
  const fresh = seen.reign !== core.reign
  law(14, fresh || core.openCalls <= Math.max(config.callsOpenMax, seen.openCalls), () => `${core.openCalls} calls are open`)
  law(14, fresh || core.programs.size <= Math.max(config.programsMax, seen.programsKept), () => `${core.programs.size} programs are kept`)
  checkTenants(core)
  seen.openCalls = core.openCalls
  seen.programsKept = core.programs.size
  law(14, core.sessions.size <= core.programs.size + core.states.size, () => `${core.sessions.size} sessions are kept, some of nothing`)
  for (const session of core.sessions.values()) {
    law(14, session.states.length <= config.sessionStatesMax, () => `${session.id} keeps ${session.states.length} prefixes`)
    law(14, session.program === null || core.programs.has(session.program), () => `${session.id} names a program that is forgotten`)
  }
  checkKept(core)
  checkTimers(core)
}

/** What each tenant has at once is what its own limits are held against. */
function checkTenants(core: Readonly<CoreState>): void {
  const had = new Map([...core.tenants.keys()].map((id) => [id, { programs: 0, calls: 0 }]))
  for (const { id, tenant, openCalls } of core.programs.values()) {
    const has = had.get(tenant)
    if (has === undefined) continue
    has.calls += openCalls
    if (!core.over.has(id)) has.programs += 1
  }
  for (const { id, livePrograms, openCalls } of core.tenants.values()) {
    const has = had.get(id)
    law(14, livePrograms === has?.programs && openCalls === has.calls, () => `${id} is said to have ${livePrograms} programs and ${openCalls} calls, and has ${has?.programs} and ${has?.calls}`)
  }
}

/** Maps without a limit of their own follow one that has. */
function checkKept(core: Readonly<CoreState>): void {
  let calls = 0
  let threads = 0
  for (const program of core.programs.values()) {
    calls += program.calls.length
    threads += program.threads.length
  }
  law(14, calls === core.calls.size && threads === core.threads.size, () => `${core.calls.size} calls and ${core.threads.size} threads are kept, programs know ${calls} and ${threads}`)
  for (const id of [...core.digests.values()].flatMap(listOf)) law(14, core.calls.has(id), () => `a digest of ${id} is kept, which is forgotten`)
  for (const link of core.toolCalls.values()) law(14, core.calls.has(link.call), () => `a tool call of ${link.call} is kept, which is forgotten`)
  for (const interrupt of core.interrupts.values()) law(14, core.calls.has(interrupt.call), () => `${interrupt.id} is kept, its call is forgotten`)
  for (const { id, learned } of core.tenants.values()) {
    law(14, learned.waits.size <= core.config.toolClassesMax + 1, () => `${learned.waits.size} tool classes of ${id} are learned`)
    law(14, learned.kinds.size <= core.config.kindsPerTenantMax + 1, () => `${learned.kinds.size} kinds of ${id} are learned`)
  }
}

/** The timers this law knows; those of policies are bounded by what they name. */
function checkTimers(core: Readonly<CoreState>): void {
  for (const timer of core.timers.keys()) {
    law(14, isWaitedFor(core, timer), () => `the timer ${timer} is set, and nothing waits for it`)
  }
  const must = (timer: string, why: string): void => law(14, core.timers.has(timer), () => `${why} and no timer ends that`)
  for (const { id, stage } of core.interrupts.values()) if (stage.kind === 'waiting') must(`expire:${id}`, `${id} waits`)
  for (const { id, stage } of core.calls.values()) if (stage.kind === 'detached') must(`detached:${id}`, `${id} is detached`)
  for (const call of core.calls.values()) {
    const waits = call.stage.kind === 'measured' && core.threads.get(call.thread)?.active === call.id && !areParentsCommitted(core, call)
    if (waits) must(`parents:${call.id}`, `${call.id} waits for its parents`)
  }
  for (const { id, stage } of core.programs.values()) if (stage.kind === 'ended' && stage.provisional) must(`close:${id}`, `${id} may be reopened`)
  const busy = new Set([...core.threads.values()].filter(({ active, interrupt }) => active !== null || interrupt !== null).map(({ program }) => program))
  for (const { id, stage } of core.programs.values()) if (stage.kind === 'open' && !busy.has(id)) must(`close:${id}`, `nobody asks anything of ${id}`)
  for (const { id, owner } of core.states.values()) if (owner.kind === 'session') must(`retire:${id}`, `${id} is kept for its session`)
}

function isWaitedFor(core: Readonly<CoreState>, timer: string): boolean {
  const cut = timer.indexOf(':')
  const subject = timer.slice(cut + 1)
  switch (timer.slice(0, cut)) {
    case 'reconsider': {
      const state = core.states.get(subject as StateId)
      return state?.residence.kind === 'suspended' && state.device !== null
    }
    case 'retire': return core.states.get(subject as StateId)?.owner.kind === 'session'
    case 'expire': return core.interrupts.get(subject as InterruptId)?.stage.kind === 'waiting'
    case 'close': {
      const stage = core.programs.get(subject as ProgramId)?.stage
      return stage?.kind === 'open' || (stage?.kind === 'ended' && stage.provisional)
    }
    case 'parents': return core.calls.get(subject as CallId)?.stage.kind === 'measured'
    case 'promote':
    case 'slack': return core.calls.get(subject as CallId)?.stage.kind === 'ready'
    case 'detached': return core.calls.get(subject as CallId)?.stage.kind === 'detached'
    default: return true
  }
}
