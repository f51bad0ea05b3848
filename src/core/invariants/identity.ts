/**
 * Owns the law of identity (8): everything of a program belongs to its tenant, down to its bytes, its retries and its tool
 * calls. (Class and deadline come from the credential and never from a body: that is held by the tests of the server.)
 */
import { must } from '../assert.ts'
import type { CallId, TenantId } from '../ids.ts'
import type { CoreState, Owner } from '../state.ts'
import { digestNumber, lastOfDigest, listOf } from '../digests.ts'
import { law } from './law.ts'

export function checkIdentity(core: Readonly<CoreState>): void {
  for (const { id, tenant, session } of core.programs.values()) {
    law(8, id.startsWith(`${tenant}/`), () => `${id} is a program of ${tenant}`)
    law(8, core.tenants.has(tenant), () => `${id} belongs to ${tenant}, which is not known`)
    law(8, session === null || !core.sessions.has(session) || must(core.sessions, session).tenant === tenant, () => `${id} is in a session of another tenant`)
  }
  for (const { id, tenant, program } of core.sessions.values()) {
    law(8, id.startsWith(`${tenant}/`), () => `${id} is a session of ${tenant}`)
    law(8, program === null || core.programs.get(program)?.tenant === tenant, () => `${id} names a program of another tenant`)
  }
  for (const { id, program } of core.threads.values()) law(8, id.startsWith(`${program}/`), () => `${id} is a thread of ${program}`)
  for (const state of core.states.values()) {
    const owner = tenantOf(core, state.owner)
    law(8, owner === null || owner === state.tenant, () => `${state.id} is of ${state.tenant} and owned by ${owner ?? ''}`)
    for (const { segment } of state.spans) law(8, core.segments.get(segment)?.tenant === state.tenant, () => `${state.id} reads ${segment}, which is another tenant's`)
  }
  for (const [key, kept] of core.digests) {
    const calls = listOf(kept)
    for (const id of calls) {
      const call = core.calls.get(id)
      law(8, call !== undefined && digestNumber(call.digest) === key && lastOfDigest(core, call.digest)?.id === id, () => `a retry under ${key} would find ${id}, which is another`)
    }
  }
  for (const [key, { call }] of core.toolCalls) law(8, isOf(core, key, call), () => `${key} is a tool call of ${call}, which is another tenant's`)
}

function tenantOf(core: Readonly<CoreState>, owner: Owner): TenantId | null {
  switch (owner.kind) {
    case 'thread': return must(core.programs, must(core.threads, owner.thread).program).tenant
    case 'session': return must(core.sessions, owner.session).tenant
    case 'nobody': return null
  }
}

const isOf = (core: Readonly<CoreState>, key: string, call: CallId): boolean =>
  key.startsWith(`${must(core.programs, must(core.calls, call).program).tenant}/`)
