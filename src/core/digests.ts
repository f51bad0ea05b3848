/**
 * Owns how a retry is known: the last call of each digest of credential and body. Calls are found by a number that is made
 * of their digest, since they hold the text of it themselves; digests that give the same number share a place.
 */
import { must } from './assert.ts'
import type { CallId } from './ids.ts'
import type { Call, CoreState } from './state.ts'

/** FNV-1a, in 31 bits. */
export function digestNumber(digest: string): number {
  let hash = 0x811c9dc5
  for (let at = 0; at < digest.length; at += 1) hash = Math.imul(hash ^ digest.charCodeAt(at), 0x01000193)
  return hash >>> 1
}

const callsAt = ({ digests }: Readonly<CoreState>, number: number): readonly CallId[] => listOf(digests.get(number) ?? [])

export const listOf = (kept: CallId | readonly CallId[]): readonly CallId[] => (typeof kept === 'string' ? [kept] : kept)

export function lastOfDigest(core: Readonly<CoreState>, digest: string): Call | undefined {
  const id = callsAt(core, digestNumber(digest)).find((other) => core.calls.get(other)?.digest === digest)
  return id === undefined ? undefined : core.calls.get(id)
}

/** For `apply` only, like all below. */
export function keepDigest(core: CoreState, { id, digest }: Pick<Call, 'id' | 'digest'>): void {
  const number = digestNumber(digest)
  const others = callsAt(core, number).filter((other) => must(core.calls, other).digest !== digest)
  core.digests.set(number, others.length === 0 ? id : [...others, id])
}

/** A call is forgotten; a later one of the same digest stays. */
export function dropDigest(core: CoreState, { id, digest }: Pick<Call, 'id' | 'digest'>): void {
  const number = digestNumber(digest)
  const others = callsAt(core, number).filter((other) => other !== id)
  const [first] = others
  if (first === undefined) core.digests.delete(number)
  else core.digests.set(number, others.length === 1 ? first : others)
}
