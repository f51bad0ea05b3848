/**
 * Owns the functions of libllama that are used, with their types on both sides. What they do is in llama.h; which
 * arguments they survive is the business of `llama.ts`.
 */
import type { LibraryHandle, TypeObject } from 'koffi'
import koffi from 'koffi'
import { batch, contextParams, modelParams, quantiseParams } from './layout.ts'
import type { Batch, ContextParams, MaybePointer, ModelParams, Pointer, QuantiseParams } from './layout.ts'

type Fn<A extends readonly unknown[], R> = (...args: A) => R

/** Told once a call that runs on another thread is over. */
export type Done = (error: unknown, result: number) => void

type Tokenize = [Pointer, Uint8Array, number, Int32Array, number, boolean, boolean]

type Decode = Fn<[Pointer, Batch], number>

export interface Functions {
  readonly version: Fn<[], string>
  readonly modelDefaults: Fn<[], ModelParams>
  readonly contextDefaults: Fn<[], ContextParams>
  readonly modelLoad: Fn<[string, ModelParams], MaybePointer>
  readonly modelFree: Fn<[Pointer], void>
  readonly modelVocab: Fn<[Pointer], Pointer>
  readonly modelLayers: Fn<[Pointer], number>
  readonly modelHeads: Fn<[Pointer], number>
  readonly modelHeadsKv: Fn<[Pointer], number>
  readonly modelWidth: Fn<[Pointer], number>
  readonly modelContext: Fn<[Pointer], number>
  readonly modelWindow: Fn<[Pointer], number>
  readonly modelBytes: Fn<[Pointer], number | bigint>
  readonly modelTemplate: Fn<[Pointer, string | null], string | null>
  readonly modelMeta: Fn<[Pointer, string, Uint8Array, number], number>
  readonly modelHasDecoder: Fn<[Pointer], boolean>
  readonly modelHasEncoder: Fn<[Pointer], boolean>
  readonly modelIsRecurrent: Fn<[Pointer], boolean>
  readonly modelIsHybrid: Fn<[Pointer], boolean>
  readonly vocabTokens: Fn<[Pointer], number>
  readonly vocabBos: Fn<[Pointer], number>
  readonly vocabEos: Fn<[Pointer], number>
  readonly vocabIsEog: Fn<[Pointer, number], boolean>
  readonly vocabIsControl: Fn<[Pointer, number], boolean>
  readonly tokenize: Fn<Tokenize, number> & { readonly async: (...args: [...Tokenize, Done]) => void }
  readonly piece: Fn<[Pointer, number, Uint8Array, number, number, boolean], number>
  readonly contextInit: Fn<[Pointer, ContextParams], MaybePointer>
  readonly contextFree: Fn<[Pointer], void>
  readonly contextLaneTokens: Fn<[Pointer], number>
  readonly contextLanes: Fn<[Pointer], number>
  readonly contextBatch: Fn<[Pointer], number>
  readonly setThreads: Fn<[Pointer, number, number], void>
  readonly memory: Fn<[Pointer], Pointer>
  readonly memoryRemove: Fn<[Pointer, number, number, number], boolean>
  readonly memoryLast: Fn<[Pointer, number], number>
  readonly decode: Decode
  readonly attachPool: Fn<[Pointer, Pointer, Pointer], void>
  readonly logitsAt: Fn<[Pointer, number], MaybePointer>
  readonly stateSize: Fn<[Pointer, number], number | bigint>
  readonly stateGet: Fn<[Pointer, Uint8Array, number, number], number | bigint>
  readonly stateSet: Fn<[Pointer, Uint8Array, number, number], number | bigint>
  readonly quantiseDefaults: Fn<[], QuantiseParams>
  readonly quantise: Fn<[string, string, QuantiseParams], number>
}

/** All of the library that the thread of batches needs. */
export const declareDecode = (llama: LibraryHandle): Decode => llama.func('llama_decode', 'int32_t', ['void *', batch]) as Decode

export function declareFunctions(llama: LibraryHandle): Functions {
  const f = (name: string, result: TypeObject | string, args: (TypeObject | string)[]): unknown =>
    llama.func(name, result, args)
  const p = 'void *'
  return {
    version: f('llama_version', 'str', []),
    modelDefaults: f('llama_model_default_params', modelParams, []),
    contextDefaults: f('llama_context_default_params', contextParams, []),
    modelLoad: f('llama_model_load_from_file', p, ['str', modelParams]),
    modelFree: f('llama_model_free', 'void', [p]),
    modelVocab: f('llama_model_get_vocab', p, [p]),
    modelLayers: f('llama_model_n_layer', 'int32_t', [p]),
    modelHeads: f('llama_model_n_head', 'int32_t', [p]),
    modelHeadsKv: f('llama_model_n_head_kv', 'int32_t', [p]),
    modelWidth: f('llama_model_n_embd', 'int32_t', [p]),
    modelContext: f('llama_model_n_ctx_train', 'int32_t', [p]),
    modelWindow: f('llama_model_n_swa', 'int32_t', [p]),
    modelBytes: f('llama_model_size', 'uint64_t', [p]),
    modelTemplate: f('llama_model_chat_template', 'str', [p, 'str']),
    modelMeta: f('llama_model_meta_val_str', 'int32_t', [p, 'str', p, 'size_t']),
    modelHasDecoder: f('llama_model_has_decoder', 'bool', [p]),
    modelHasEncoder: f('llama_model_has_encoder', 'bool', [p]),
    modelIsRecurrent: f('llama_model_is_recurrent', 'bool', [p]),
    modelIsHybrid: f('llama_model_is_hybrid', 'bool', [p]),
    vocabTokens: f('llama_vocab_n_tokens', 'int32_t', [p]),
    vocabBos: f('llama_vocab_bos', 'int32_t', [p]),
    vocabEos: f('llama_vocab_eos', 'int32_t', [p]),
    vocabIsEog: f('llama_vocab_is_eog', 'bool', [p, 'int32_t']),
    vocabIsControl: f('llama_vocab_is_control', 'bool', [p, 'int32_t']),
    tokenize: f('llama_tokenize', 'int32_t', [p, p, 'int32_t', p, 'int32_t', 'bool', 'bool']),
    piece: f('llama_token_to_piece', 'int32_t', [p, 'int32_t', p, 'int32_t', 'int32_t', 'bool']),
    contextInit: f('llama_init_from_model', p, [p, contextParams]),
    contextFree: f('llama_free', 'void', [p]),
    contextLaneTokens: f('llama_n_ctx_seq', 'uint32_t', [p]),
    contextLanes: f('llama_n_seq_max', 'uint32_t', [p]),
    contextBatch: f('llama_n_batch', 'uint32_t', [p]),
    setThreads: f('llama_set_n_threads', 'void', [p, 'int32_t', 'int32_t']),
    memory: f('llama_get_memory', p, [p]),
    memoryRemove: f('llama_memory_seq_rm', 'bool', [p, 'int32_t', 'int32_t', 'int32_t']),
    memoryLast: f('llama_memory_seq_pos_max', 'int32_t', [p, 'int32_t']),
    decode: declareDecode(llama),
    attachPool: f('llama_attach_threadpool', 'void', [p, p, p]),
    logitsAt: f('llama_get_logits_ith', p, [p, 'int32_t']),
    stateSize: f('llama_state_seq_get_size', 'size_t', [p, 'int32_t']),
    stateGet: f('llama_state_seq_get_data', 'size_t', [p, p, 'size_t', 'int32_t']),
    stateSet: f('llama_state_seq_set_data', 'size_t', [p, p, 'size_t', 'int32_t']),
    quantiseDefaults: f('llama_model_quantize_default_params', quantiseParams, []),
    quantise: f('llama_model_quantize', 'uint32_t', ['str', 'str', koffi.pointer(quantiseParams)]),
  } as Functions
}
