/**
 * Owns the memory layout of the structs that libllama takes and returns by value, field by field as in llama.h of
 * LAYOUT_VERSION. Leaves to `library.ts` the functions that use them.
 *
 * Nothing in a shared library says what its structs look like, and a wrong layout corrupts memory in silence. So:
 * L1 the library's version is the one these layouts were written from;
 * L2 the library's own default parameters, read through these layouts, are the defaults of that version, the last field
 *    of each struct among them; anything else is refused before a model is touched.
 */
import koffi from 'koffi'
import type { TypeObject } from 'koffi'
import { LlamaError } from './error.ts'

/** The release whose llama.h this file follows. */
export const LAYOUT_VERSION = '0.4.0'

export type Pointer = bigint

/** `NULL` is null: koffi reads and writes it so. */
export type MaybePointer = Pointer | null

const pointer = 'void *'

export interface ModelParams {
  devices: MaybePointer
  tensor_buft_overrides: MaybePointer
  n_gpu_layers: number
  split_mode: number
  load_mode: number
  lazy_mode: number
  main_gpu: number
  tensor_split: MaybePointer
  progress_callback: MaybePointer
  progress_callback_user_data: MaybePointer
  kv_overrides: MaybePointer
  vocab_only: boolean
  check_tensors: boolean
  use_extra_bufts: boolean
  no_host: boolean
  no_alloc: boolean
  load_mtp: boolean
}

export const modelParams = koffi.struct({
  devices: pointer,
  tensor_buft_overrides: pointer,
  n_gpu_layers: 'int32_t',
  split_mode: 'int32_t',
  load_mode: 'int32_t',
  lazy_mode: 'int32_t',
  main_gpu: 'int32_t',
  tensor_split: pointer,
  progress_callback: pointer,
  progress_callback_user_data: pointer,
  kv_overrides: pointer,
  vocab_only: 'bool',
  check_tensors: 'bool',
  use_extra_bufts: 'bool',
  no_host: 'bool',
  no_alloc: 'bool',
  load_mtp: 'bool',
} satisfies Record<keyof ModelParams, TypeObject | string>)

export interface ContextParams {
  n_ctx: number
  n_batch: number
  n_ubatch: number
  n_seq_max: number
  n_rs_seq: number
  n_outputs_max: number
  n_outputs_max_per_seq: number
  n_threads: number
  n_threads_batch: number
  ctx_type: number
  rope_scaling_type: number
  pooling_type: number
  attention_type: number
  flash_attn_type: number
  rope_freq_base: number
  rope_freq_scale: number
  yarn_ext_factor: number
  yarn_attn_factor: number
  yarn_beta_fast: number
  yarn_beta_slow: number
  yarn_orig_ctx: number
  defrag_thold: number
  cb_eval: MaybePointer
  cb_eval_user_data: MaybePointer
  type_k: number
  type_v: number
  abort_callback: MaybePointer
  abort_callback_data: MaybePointer
  embeddings: boolean
  offload_kqv: boolean
  no_perf: boolean
  op_offload: boolean
  swa_full: boolean
  kv_unified: boolean
  samplers: MaybePointer
  n_samplers: number
  ctx_other: MaybePointer
}

export const contextParams = koffi.struct({
  n_ctx: 'uint32_t',
  n_batch: 'uint32_t',
  n_ubatch: 'uint32_t',
  n_seq_max: 'uint32_t',
  n_rs_seq: 'uint32_t',
  n_outputs_max: 'uint32_t',
  n_outputs_max_per_seq: 'uint32_t',
  n_threads: 'int32_t',
  n_threads_batch: 'int32_t',
  ctx_type: 'int32_t',
  rope_scaling_type: 'int32_t',
  pooling_type: 'int32_t',
  attention_type: 'int32_t',
  flash_attn_type: 'int32_t',
  rope_freq_base: 'float',
  rope_freq_scale: 'float',
  yarn_ext_factor: 'float',
  yarn_attn_factor: 'float',
  yarn_beta_fast: 'float',
  yarn_beta_slow: 'float',
  yarn_orig_ctx: 'uint32_t',
  defrag_thold: 'float',
  cb_eval: pointer,
  cb_eval_user_data: pointer,
  type_k: 'int32_t',
  type_v: 'int32_t',
  abort_callback: pointer,
  abort_callback_data: pointer,
  embeddings: 'bool',
  offload_kqv: 'bool',
  no_perf: 'bool',
  op_offload: 'bool',
  swa_full: 'bool',
  kv_unified: 'bool',
  samplers: pointer,
  n_samplers: 'size_t',
  ctx_other: pointer,
} satisfies Record<keyof ContextParams, TypeObject | string>)

export interface QuantiseParams {
  nthread: number
  ftype: number
  output_tensor_type: number
  token_embedding_type: number
  allow_requantize: boolean
  quantize_output_tensor: boolean
  only_copy: boolean
  pure: boolean
  keep_split: boolean
  dry_run: boolean
  imatrix: MaybePointer
  kv_overrides: MaybePointer
  tt_overrides: MaybePointer
  prune_layers: MaybePointer
  max_buf_size: number | bigint
}

export const quantiseParams = koffi.struct({
  nthread: 'int32_t',
  ftype: 'int32_t',
  output_tensor_type: 'int32_t',
  token_embedding_type: 'int32_t',
  allow_requantize: 'bool',
  quantize_output_tensor: 'bool',
  only_copy: 'bool',
  pure: 'bool',
  keep_split: 'bool',
  dry_run: 'bool',
  imatrix: pointer,
  kv_overrides: pointer,
  tt_overrides: pointer,
  prune_layers: pointer,
  max_buf_size: 'size_t',
} satisfies Record<keyof QuantiseParams, TypeObject | string>)

/** Passed by value to `llama_decode`; the arrays are ours. */
export interface Batch {
  n_tokens: number
  token: MaybePointer
  embd: MaybePointer
  pos: MaybePointer
  n_seq_id: MaybePointer
  seq_id: MaybePointer
  logits: MaybePointer
}

export const batch = koffi.struct({
  n_tokens: 'int32_t',
  token: pointer,
  embd: pointer,
  pos: pointer,
  n_seq_id: pointer,
  seq_id: pointer,
  logits: pointer,
} satisfies Record<keyof Batch, TypeObject | string>)

const TYPE_F16 = 1

/** `llama_load_mode`. */
export const LOAD_MODES = { auto: -1, map: 1, lock: 3, read: 0 } as const
export type LoadMode = keyof typeof LOAD_MODES

export const FLASH_ATTENTION_OFF = 0
export const FLASH_ATTENTION_ON = 1

/** What `llama_model_default_params` of LAYOUT_VERSION answers. */
const MODEL_DEFAULTS: Partial<ModelParams> = {
  devices: null, tensor_buft_overrides: null, n_gpu_layers: -1, split_mode: 1, load_mode: -1, lazy_mode: 1, main_gpu: 0,
  tensor_split: null, progress_callback: null, progress_callback_user_data: null, kv_overrides: null,
  vocab_only: false, check_tensors: false, use_extra_bufts: true, no_host: false, no_alloc: false, load_mtp: false,
}

/** What `llama_context_default_params` of LAYOUT_VERSION answers. */
const CONTEXT_DEFAULTS: Partial<ContextParams> = {
  n_ctx: 512, n_batch: 2048, n_ubatch: 512, n_seq_max: 1, n_rs_seq: 0, n_outputs_max: 0, n_outputs_max_per_seq: 1,
  n_threads: 4, n_threads_batch: 4, ctx_type: 0, rope_scaling_type: -1, pooling_type: -1, attention_type: -1,
  flash_attn_type: -1, rope_freq_base: 0, rope_freq_scale: 0, yarn_ext_factor: -1, yarn_attn_factor: -1,
  yarn_beta_fast: -1, yarn_beta_slow: -1, yarn_orig_ctx: 0, defrag_thold: -1, cb_eval: null, cb_eval_user_data: null,
  type_k: TYPE_F16, type_v: TYPE_F16, abort_callback: null, abort_callback_data: null, embeddings: false,
  offload_kqv: true, no_perf: true, op_offload: true, swa_full: true, kv_unified: false,
  samplers: null, n_samplers: 0, ctx_other: null,
}

/** What `llama_model_quantize_default_params` of LAYOUT_VERSION answers. */
const QUANTISE_DEFAULTS: Partial<QuantiseParams> = {
  nthread: 0, ftype: 7, output_tensor_type: 43, token_embedding_type: 43, allow_requantize: false, quantize_output_tensor: true,
  only_copy: false, pure: false, keep_split: false, dry_run: false, imatrix: null, kv_overrides: null, tt_overrides: null,
  prune_layers: null, max_buf_size: 8 * 1024 ** 3,
}

/** Throws where L2 does not hold for the quantiser, which only its own users need. */
export function checkQuantiser(params: QuantiseParams): void {
  const wrong = differences('llama_model_quantize_params', QUANTISE_DEFAULTS, params)
  if (wrong.length === 0) return
  throw new LlamaError('layout', `the llama library's quantiser has another layout than that of ${LAYOUT_VERSION}: ${wrong.slice(0, 4).join(', ')}.`)
}

/** Throws where L1 or L2 does not hold. */
export function checkLayout(version: string, model: ModelParams, context: ContextParams): void {
  if (version !== LAYOUT_VERSION && !version.startsWith(`${LAYOUT_VERSION}-`)) {
    throw new LlamaError('layout', `the llama library says it is version ${version}, but its structs are known here `
      + `for ${LAYOUT_VERSION} only. Use the library of that release, or remove the setting that points elsewhere.`)
  }
  const wrong = [
    ...differences('llama_model_params', MODEL_DEFAULTS, model),
    ...differences('llama_context_params', CONTEXT_DEFAULTS, context),
  ]
  if (wrong.length === 0) return
  throw new LlamaError('layout', 'the llama library lays out its structs differently than llama.h of '
    + `${LAYOUT_VERSION}: ${wrong.slice(0, 4).join(', ')}. It is not safe to use it. Use the library of that release.`)
}

function differences<T extends object>(struct: string, want: Partial<T>, got: T): string[] {
  const keys = Object.keys(want) as (keyof T & string)[]
  return keys.filter((key) => want[key] !== got[key])
    .map((key) => `${struct}.${key} is ${String(got[key])}, expected ${String(want[key])}`)
}
