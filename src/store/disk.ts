/** Owns what the store asks of whatever keeps its bytes; `sqlite-disk.ts` and `memory.ts` are the two that do. */
import type { Logged } from '../core/fact.ts'
import type { BodyId, MoveId, TenantId } from '../core/ids.ts'
import type { Bytes, Us } from '../core/units.ts'

export interface Body {
  readonly tenant: TenantId
  readonly bytes: Uint8Array
}

export interface Image {
  readonly bytes: Bytes
  readonly digest: string
}

/** What is written together: all of it is durable afterwards, or none of it is there. Null takes away. */
export interface Batch {
  readonly facts: readonly Logged[]
  readonly bodies: ReadonlyMap<BodyId, Body | null>
  readonly images: ReadonlyMap<MoveId, Image | null>
}

export type FoundBody =
  | { readonly kind: 'whole'; readonly bytes: Uint8Array }
  | { readonly kind: 'damaged'; readonly why: string }

export interface Disk {
  /** Throws StoreError where it could not be made durable. */
  commit(batch: Batch): void
  /** At most `limit` facts with a larger number, in order. */
  facts(afterSeq: number, limit: number): readonly Logged[]
  body(id: BodyId): FoundBody | null
  /** Sizes as they were put, oldest first. */
  bodySizes(): readonly { readonly id: BodyId; readonly bytes: Bytes }[]
  images(): readonly (Image & { readonly id: MoveId })[]
  /** Deletes at most `limit` facts up to `upToSeq` that are from before `beforeUs`, oldest first; says how many. */
  trim(upToSeq: number, beforeUs: Us, limit: number): number
  /** Counts up by one, durable before it returns. */
  nextReign(): number
  close(): void
}
