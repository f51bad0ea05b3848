/** Owns the numbers that a GGUF file gives instead of names: element types with their sizes, and quantisations. */

interface ElementType {
  /** Elements in a block, and the block's bytes. */
  readonly block: number
  readonly bytes: number
}

const type = (block: number, bytes: number): ElementType => ({ block, bytes })

/** By ggml's number; a number that is not here is of a newer release. */
export const ELEMENT_TYPES: ReadonlyMap<number, ElementType> = new Map([
  [0, type(1, 4)], [1, type(1, 2)], [2, type(32, 18)], [3, type(32, 20)], [6, type(32, 22)], [7, type(32, 24)],
  [8, type(32, 34)], [9, type(32, 36)], [10, type(256, 84)], [11, type(256, 110)], [12, type(256, 144)],
  [13, type(256, 176)], [14, type(256, 210)], [15, type(256, 292)], [16, type(256, 66)], [17, type(256, 74)],
  [18, type(256, 98)], [19, type(256, 50)], [20, type(32, 18)], [21, type(256, 110)], [22, type(256, 82)],
  [23, type(256, 136)], [24, type(1, 1)], [25, type(1, 2)], [26, type(1, 4)], [27, type(1, 8)], [28, type(1, 8)],
  [29, type(256, 56)], [30, type(1, 2)], [34, type(256, 54)], [35, type(256, 66)], [39, type(32, 17)],
  [40, type(64, 36)], [41, type(128, 18)], [42, type(64, 18)],
])

/** What `general.file_type` says most tensors are. */
const QUANTISATIONS: ReadonlyMap<number, string> = new Map([
  [0, 'F32'], [1, 'F16'], [2, 'Q4_0'], [3, 'Q4_1'], [7, 'Q8_0'], [8, 'Q5_0'], [9, 'Q5_1'], [10, 'Q2_K'],
  [11, 'Q3_K_S'], [12, 'Q3_K_M'], [13, 'Q3_K_L'], [14, 'Q4_K_S'], [15, 'Q4_K_M'], [16, 'Q5_K_S'], [17, 'Q5_K_M'],
  [18, 'Q6_K'], [19, 'IQ2_XXS'], [20, 'IQ2_XS'], [21, 'Q2_K_S'], [22, 'IQ3_XS'], [23, 'IQ3_XXS'], [24, 'IQ1_S'],
  [25, 'IQ4_NL'], [26, 'IQ3_S'], [27, 'IQ3_M'], [28, 'IQ2_S'], [29, 'IQ2_M'], [30, 'IQ4_XS'], [31, 'IQ1_M'],
  [32, 'BF16'], [36, 'TQ1_0'], [37, 'TQ2_0'], [38, 'MXFP4'], [39, 'NVFP4'], [40, 'Q1_0'], [41, 'Q2_0'],
])

export const quantisationName = (fileType: number): string => QUANTISATIONS.get(fileType) ?? `type ${fileType}`
