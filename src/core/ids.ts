/**
 * Owns the branded ids. Nothing else in the core may cast a string to an id.
 *
 * Ids that a client may choose are namespaced by tenant (`tenant/raw`), so the same id under two credentials is two
 * things (DESIGN 4). Ids that we choose come in with an input, from a port, so the core stays deterministic.
 */
declare const brand: unique symbol
type Id<Name extends string> = string & { readonly [brand]: Name }

export type TenantId = Id<'Tenant'>
export type SessionId = Id<'Session'>
export type ProgramId = Id<'Program'>
export type ThreadId = Id<'Thread'>
export type CallId = Id<'Call'>
export type InterruptId = Id<'Interrupt'>
export type EngineId = Id<'Engine'>
export type StateId = Id<'State'>
export type SegmentId = Id<'Segment'>
export type MoveId = Id<'Move'>
export type BodyId = Id<'Body'>
export type NodeId = Id<'Node'>

export const tenantId = (raw: string): TenantId => raw as TenantId
export const engineId = (raw: string): EngineId => raw as EngineId
export const callId = (raw: string): CallId => raw as CallId
export const bodyId = (raw: string): BodyId => raw as BodyId
export const stateId = (raw: string): StateId => raw as StateId
export const moveId = (raw: string): MoveId => raw as MoveId
export const segmentId = (raw: string): SegmentId => raw as SegmentId
/** As its runtime names it; means something only beside its program. */
export const nodeId = (raw: string): NodeId => raw as NodeId

/** `raw` as the client wrote it; two tenants never share the result. */
export const programId = (tenant: TenantId, raw: string): ProgramId => join(tenant, raw) as ProgramId
/** Whether it may be a program of this tenant: it begins as one, so that others need not be looked at. */
export const isNamedBy = (program: ProgramId, tenant: TenantId): boolean => program.startsWith(`${tenant}/`)
export const sessionId = (tenant: TenantId, raw: string): SessionId => join(tenant, raw) as SessionId
/** The last `/` ends the program's id, whatever `raw` holds. */
export const threadId = (program: ProgramId, raw: string): ThreadId =>
  join(program, raw.replaceAll('%', '%25').replaceAll('/', '%2F')) as ThreadId

/** In one piece: a template leaves the pieces in memory beside the whole, for as long as anything keeps the id. */
const join = (owner: string, raw: string): string => [owner, raw].join('/')

/** An interrupt is the wait after one call, so the call names it. */
export const interruptId = (call: CallId): InterruptId => `${call}.wait` as InterruptId

/** What the client wrote, without the tenant. */
export const rawOf = (id: ProgramId | SessionId): string => id.slice(id.indexOf('/') + 1)
