/** Owns reading what probes of exactness have answered on this machine, and under which settings. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDirectory, PROBES_FILE } from '../models/cache.ts'

export interface ProbeAnswer {
  readonly modelDigest: string
  readonly library: string
  readonly cpuKernel: string
  readonly flashAttention: boolean
  readonly extraBuffers: boolean
  readonly lanes: number
  readonly laneTokens: number
  readonly chunkTokens: number
  readonly threads: number
  readonly kvTypes: string
  readonly gpu: string
  readonly answer: string
  readonly because: string
}

/** The newest last; none where the file is not there or not readable, which the next probe writes anew. */
export function probeAnswers(): readonly ProbeAnswer[] {
  const path = join(cacheDirectory(process.env), PROBES_FILE)
  if (!existsSync(path)) return []
  const file = parsed(readFileSync(path, 'utf8'))
  if (typeof file !== 'object' || file === null || !('answers' in file) || !Array.isArray(file.answers)) return []
  return file.answers.flatMap(answerOf)
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}

function answerOf(entry: unknown): readonly ProbeAnswer[] {
  if (!Array.isArray(entry) || typeof entry[0] !== 'string') return []
  const [, modelDigest, library, cpuKernel, , attention, weights, lanes, laneTokens, chunkTokens, threads, kvTypes = 'f16,f16', gpu = 'cpu'] = entry[0].split('/')
  const said: unknown = entry[1]
  if (modelDigest === undefined || library === undefined || cpuKernel === undefined) return []
  if (typeof said !== 'object' || said === null || !('answer' in said) || !('because' in said)) return []
  return [{
    modelDigest, library, cpuKernel, flashAttention: attention === 'fa', extraBuffers: weights === 'repacked',
    lanes: Number(lanes), laneTokens: Number(laneTokens), chunkTokens: Number(chunkTokens), threads: Number(threads), kvTypes, gpu,
    answer: String(said.answer), because: String(said.because),
  }]
}
