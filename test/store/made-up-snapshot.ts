/** Snapshots that anybody can tell by their number, whether they are those and whole. */
import type { Snapshot } from '../../src/core/snapshot.ts'
import type { NextSnapshot } from '../../src/store/snapshot-maker.ts'

export const snapshotAfter = (seq: number): Snapshot =>
  ({ version: 1, seq, atUs: seq * 1_000, texts: Array.from({ length: 20 }, (_, index) => `${seq}.${index}.`.repeat(5_000)) })

export const snapshotOf = (seq: number): Snapshot => ({ version: 1, seq, atUs: seq * 1_000, texts: [`{"ä€😀\\n":${seq}}`, '', 'x'.repeat(seq)] })

/** After the last fact there is. */
export const nextAfter = (make: (seq: number) => Snapshot): NextSnapshot => (base, facts) =>
  make([...facts].at(-1)?.seq ?? base?.seq ?? -1)
