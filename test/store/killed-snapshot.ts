/** The snapshot that the killed writer makes after a fact; anybody can tell whether it is that one and whole. */
import type { Snapshot } from '../../src/core/snapshot.ts'

export const snapshotAfter = (seq: number): Snapshot =>
  ({ version: 1, seq, atUs: seq * 1_000, texts: Array.from({ length: 20 }, (_, index) => `${seq}.${index}.`.repeat(5_000)) })
