/**
 * Owns what one iteration of the engine is: a decode of one row for each lane that decodes, or a prefill of one lane;
 * the two are never mixed (E1). Rows of a decode are in the order of lanes, so that neighbours run together.
 */
import assert from 'node:assert/strict'
import type { Row } from './llama/llama.ts'
import type { Sequence } from './sequence.ts'

export type Batch =
  | { readonly kind: 'decode'; readonly members: readonly Sequence[] }
  | { readonly kind: 'prefill'; readonly member: Sequence; readonly count: number }

export const membersOf = (batch: Batch): readonly Sequence[] => batch.kind === 'decode' ? batch.members : [batch.member]

export function rowsOf(batch: Batch): readonly Row[] {
  if (batch.kind === 'decode') return batch.members.map((member) => rowOf(member, member.fed.length))
  const { member, count } = batch
  assert(count > 1, 'a prefill of one row')
  const from = member.fed.length
  return Array.from({ length: count }, (_, i) => rowOf(member, from + i))
}

function rowOf(sequence: Sequence, position: number): Row {
  return { token: sequence.tokenAt(position), position, lane: sequence.lane.index, logits: sequence.drawsAt(position) }
}
