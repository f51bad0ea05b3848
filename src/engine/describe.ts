/** Owns what an engine says of a model before it serves it: what the library found, and what we make of it. */
import type { WireDescription, WireSpeeds } from '../protocol/engine.ts'
import type { Llama } from './llama/llama.ts'
import type { ChatTemplate } from './template.ts'

export function describe(
  llama: Llama, template: ChatTemplate, loses: readonly string[], speeds: WireSpeeds,
): WireDescription {
  const { info } = llama
  const { library, gpu, fallback, cpuKernel, architecture, memory, layers, vocabSize, trainedContext, modelBytes } = info
  const { kvBytesPerToken, stateBytes, trims, copies, images } = info
  return {
    library, gpu, fallback, cpuKernel, architecture, memory, layers, trainedContext, kvBytesPerToken, stateBytes, loses, speeds,
    vocabulary: vocabSize,
    weightsBytes: modelBytes,
    can: { trim: trims, copy: copies, image: images },
    template: info.chatTemplate === null ? 'chatml' : 'model',
    tools: { kind: template.toolUse.kind, format: template.toolUse.format.name },
    reasoning: template.reasoning,
  }
}
