/**
 * Owns the journal of one open call: the output tokens shown so far and what they show, kept as working bodies so that
 * another attempt, or another life of ours, goes on where this one stopped. When it is written is `streams.ts`'s.
 *
 * It is kept in leaves: a full one is written once and never again, the last one anew as it grows. So what a write costs
 * does not grow with the output, and a leaf that is lost takes with it only what came after it: each says which tokens it
 * follows, so what stands behind a gap never comes back after others. It is dropped at the next start at the latest.
 */
import { crc32 } from 'node:zlib'

import type { CallId, TenantId } from '../core/ids.ts'
import type { Bodies, StreamPart } from './ports.ts'
import { journalOf } from './working-bodies.ts'

/** A leaf of so many is full; one chunk may take it further. */
const LEAF_TOKENS = 64

interface Leaf {
  /** A checksum of all tokens before it. */
  readonly after: number
  readonly tokens: number[]
  readonly parts: StreamPart[]
}

const isFull = ({ tokens }: Leaf): boolean => tokens.length >= LEAF_TOKENS

export class Journal {
  readonly #bodies: Bodies
  readonly #call: CallId
  readonly #tenant: TenantId
  /** Leaves that are full and written: nothing of them is held here. */
  #done = 0
  /** The leaves after those, all full but the last. */
  #open: Leaf[] = []
  /** Of all full leaves. */
  #sum = 0

  constructor(bodies: Bodies, call: CallId, tenant: TenantId) {
    this.#bodies = bodies
    this.#call = call
    this.#tenant = tenant
  }

  /** What an earlier life of ours wrote, up to the first leaf that is not there or cannot be read. */
  restore(): Readonly<Pick<Leaf, 'tokens' | 'parts'>> {
    const all: Pick<Leaf, 'tokens' | 'parts'> = { tokens: [], parts: [] }
    for (;;) {
      const leaf = readLeaf(this.#bodies.get(journalOf(this.#call, this.#done)))
      if (leaf === null || leaf.after !== this.#sum) return all
      all.tokens.push(...leaf.tokens)
      all.parts.push(...leaf.parts)
      if (!isFull(leaf)) {
        this.#open = [leaf]
        return all
      }
      this.#sum = sumOf(leaf)
      this.#done += 1
    }
  }

  add(tokens: readonly number[], parts: readonly StreamPart[]): void {
    let leaf = this.#open.at(-1)
    if (leaf === undefined || isFull(leaf)) {
      if (leaf !== undefined) this.#sum = sumOf(leaf)
      this.#open.push(leaf = { after: this.#sum, tokens: [], parts: [] })
    }
    leaf.tokens.push(...tokens)
    leaf.parts.push(...parts)
  }

  /** Puts what was added since the last time. */
  write(): void {
    for (const [at, leaf] of this.#open.entries()) {
      this.#bodies.put(journalOf(this.#call, this.#done + at), this.#tenant, Buffer.from(JSON.stringify(leaf)))
    }
    const open = this.#open.filter((leaf) => !isFull(leaf))
    const last = this.#open.at(-1)
    if (last !== undefined && isFull(last)) this.#sum = sumOf(last)
    this.#done += this.#open.length - open.length
    this.#open = open
  }

  drop(): void {
    for (let leaf = 0; leaf < this.#done + this.#open.length; leaf++) this.#bodies.drop(journalOf(this.#call, leaf))
  }
}

/** Of a call that is not open here: an earlier life of ours showed it. */
export function dropJournal(bodies: Bodies, call: CallId): void {
  for (let leaf = 0; bodies.get(journalOf(call, leaf)) !== null; leaf++) bodies.drop(journalOf(call, leaf))
}

const sumOf = ({ after, tokens }: Leaf): number => crc32(Buffer.from(Uint32Array.from(tokens).buffer), after)

/** A journal is ours, but a disk may hand back anything: what is not a leaf is as good as none. */
function readLeaf(bytes: Uint8Array | null): Leaf | null {
  if (bytes === null) return null
  const value = parsed(Buffer.from(bytes).toString('utf8'))
  if (typeof value !== 'object' || value === null || !('after' in value) || !('tokens' in value) || !('parts' in value)) return null
  const { after, tokens, parts } = value
  return typeof after === 'number' && Array.isArray(tokens) && Array.isArray(parts) ? { after, tokens, parts } : null
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}
