/**
 * Owns who a request comes from: a bearer key against the digests in the configuration, in constant time, or the single
 * tenant of a machine that serves only itself. Tenant, class and deadline come from here and from nowhere else
 * (invariant 8).
 */
import { createHash, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { tenantId } from '../core/ids.ts'
import type { Us } from '../core/units.ts'
import type { Credential } from './door.ts'

/** One configured tenant. */
export interface TenantKey {
  readonly name: string
  /** Hex digest of the key. */
  readonly keySha256: string
  readonly class: string
  readonly deadlineUs: Us | null
  readonly statesDeadlines: boolean
  readonly exactResume: boolean | null
}

const SINGLE: Credential = { tenant: tenantId('local'), priorityClass: 'default', deadlineUs: null, statesDeadlines: false, exactResume: null }
/** For routes that are open: a tenant that owns nothing, as its name is not one that a configuration can give. */
export const NOBODY: Credential = { ...SINGLE, tenant: tenantId('') }

type Admission =
  | { readonly ok: true; readonly credential: Credential }
  | { readonly ok: false; readonly code: 'unauthorized' | 'forbidden'; readonly why: string }

export class Keyring {
  readonly #entries: readonly { readonly digest: Buffer; readonly credential: Credential }[]

  constructor(tenants: readonly TenantKey[]) {
    this.#entries = tenants.map((tenant) => ({
      digest: Buffer.from(tenant.keySha256, 'hex'),
      credential: {
        tenant: tenantId(tenant.name),
        priorityClass: tenant.class,
        deadlineUs: tenant.deadlineUs,
        statesDeadlines: tenant.statesDeadlines,
        exactResume: tenant.exactResume,
      },
    }))
  }

  admit(headers: IncomingHttpHeaders): Admission {
    if (this.#entries.length === 0) return fromThisMachine(headers)
    const key = bearerOf(headers)
    if (key === null) return { ok: false, code: 'unauthorized', why: 'there is no bearer key' }
    const digest = createHash('sha256').update(key).digest()
    // Every entry is compared, so that the time taken tells nothing about which came close.
    const found = this.#entries.filter((entry) => timingSafeEqual(entry.digest, digest))
    const [entry] = found
    return entry === undefined
      ? { ok: false, code: 'unauthorized', why: 'no tenant has this key' }
      : { ok: true, credential: entry.credential }
  }
}

/** Who looks after the server has a key of its own; without one, a machine that serves only itself lets its own programs. */
export function adminRefusal(headers: IncomingHttpHeaders, adminKey: string | null, isShared: boolean): Extract<Admission, { ok: false }> | null {
  if (adminKey === null && isShared) return { ok: false, code: 'unauthorized', why: 'with tenants or beyond loopback this wants adminKey, and the configuration has none' }
  if (adminKey === null) {
    const admission = fromThisMachine(headers)
    return admission.ok ? null : admission
  }
  const key = bearerOf(headers)
  return key !== null && isSameKey(key, adminKey) ? null : { ok: false, code: 'unauthorized', why: 'this wants adminKey of the configuration' }
}

export function bearerOf(headers: IncomingHttpHeaders): string | null {
  return /^Bearer +(\S+) *$/i.exec(headers.authorization ?? '')?.[1] ?? null
}

/** Compares by digest, so that neither content nor length shows in the time taken. */
export function isSameKey(given: string, expected: string): boolean {
  const digest = (key: string): Buffer => createHash('sha256').update(key).digest()
  return timingSafeEqual(digest(given), digest(expected))
}

/**
 * Without keys the listener is on loopback, and a web page must not reach it through its visitor's browser: neither by
 * a name that was made to point here nor from another origin.
 */
function fromThisMachine(headers: IncomingHttpHeaders): Admission {
  const host = hostOf(`http://${headers.host ?? ''}`)
  if (!isLoopbackName(host)) {
    return { ok: false, code: 'forbidden', why: `the request is addressed to "${headers.host ?? ''}"` }
  }
  const { origin } = headers
  if (origin !== undefined && !isLoopbackName(hostOf(origin))) {
    return { ok: false, code: 'forbidden', why: `it comes from a page of "${origin}"` }
  }
  return { ok: true, credential: SINGLE }
}

const hostOf = (url: string): string => (URL.canParse(url) ? new URL(url).hostname : '')

export function isLoopbackName(host: string): boolean {
  return host === 'localhost' || host.endsWith('.localhost') || host === '[::1]' || host === '::1'
    || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)
}
