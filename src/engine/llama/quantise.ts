/** Owns writing a model anew with weights of another type, by the library's own quantiser. */
import { LlamaError } from './error.ts'
import { checkQuantiser } from './layout.ts'
import { openLibrary } from './library.ts'

/** The library's numbers of what most tensors become. */
const FILE_TYPES = {
  F32: 0, F16: 1, Q4_0: 2, Q4_1: 3, Q8_0: 7, Q5_0: 8, Q5_1: 9, Q4_K_S: 14, Q4_K_M: 15, Q5_K_M: 17, Q6_K: 18, IQ4_NL: 25, BF16: 32,
} as const

export type Quantisation = keyof typeof FILE_TYPES
export const QUANTISATIONS = Object.keys(FILE_TYPES) as readonly Quantisation[]

/**
 * From a model of any type: what its weights lost before stays lost. Takes seconds to minutes and blocks. Throws
 * LlamaError.
 */
export function quantise(from: string, to: string, as: Quantisation, threads: number): void {
  const library = openLibrary(null)
  const params = library.fn.quantiseDefaults()
  checkQuantiser(params)
  params.nthread = threads
  params.ftype = FILE_TYPES[as]
  params.allow_requantize = true
  const { result, lines } = library.logged(() => library.fn.quantise(from, to, params))
  if (result === 0) return
  throw new LlamaError('model', `${from} could not be written as ${as}: ${lines.join(' ') || `code ${result}`}.`)
}
