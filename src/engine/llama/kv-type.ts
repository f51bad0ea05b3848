/**
 * Owns the element types that K and V may be kept in: their numbers and sizes, and which of them this model and these
 * settings can have. The library ends the process at some that it cannot have, so they are refused here (N1).
 */
import { LlamaError } from './error.ts'

interface Form {
  /** ggml's number of the type. */
  readonly id: number
  /** Elements that are kept together. */
  readonly block: number
  readonly blockBytes: number
}

const FORMS = {
  f32: { id: 0, block: 1, blockBytes: 4 }, f16: { id: 1, block: 1, blockBytes: 2 }, bf16: { id: 30, block: 1, blockBytes: 2 },
  q8_0: { id: 8, block: 32, blockBytes: 34 }, q5_1: { id: 7, block: 32, blockBytes: 24 }, q5_0: { id: 6, block: 32, blockBytes: 22 },
  q4_1: { id: 3, block: 32, blockBytes: 20 }, q4_0: { id: 2, block: 32, blockBytes: 18 }, iq4_nl: { id: 20, block: 32, blockBytes: 18 },
} as const satisfies Record<string, Form>

export type KvType = keyof typeof FORMS

export const KV_TYPES = Object.keys(FORMS) as readonly KvType[]

export interface KvTypes {
  readonly k: KvType
  readonly v: KvType
}

export const kvTypeId = (type: KvType): number => FORMS[type].id

export const kvElementBytes = (type: KvType): number => FORMS[type].blockBytes / FORMS[type].block

/** Throws LlamaError. `widths`: of one head of K and of V. */
export function checkKvTypes(types: KvTypes, flashAttention: boolean, widths: KvWidths): void {
  if (FORMS[types.v].block > 1 && !flashAttention) {
    throw new LlamaError('model', `V as ${types.v} needs flash attention, which is off. Turn it on, or keep V in f16, bf16 or f32.`)
  }
  for (const of of ['k', 'v'] as const) {
    const { block } = FORMS[types[of]]
    if (widths[of] % block === 0) continue
    throw new LlamaError('model', `${of.toUpperCase()} as ${types[of]} is kept in blocks of ${block}, and a head of this model is ${widths[of]} wide. `
      + 'Take f16, bf16 or f32.')
  }
}

interface KvWidths { readonly k: number; readonly v: number }
