/** Owns reading what probes of exactness have answered on this machine, and under which settings. */
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDirectory, PROBES_FILE } from '../models/cache.ts'

export interface ProbeAnswer {
  readonly modelDigest: string
  readonly library: string
  readonly cpuKernel: string
  readonly flashAttention: boolean | 'exact'
  readonly extraBuffers: boolean
  readonly lanes: number
  readonly laneTokens: number
  readonly chunkTokens: number
  readonly threads: number
  readonly kvTypes: string
  readonly gpu: string
  readonly rowUnit: number
  readonly answer: string
  readonly because: string
  /** Null where these settings were not weighed. */
  readonly speeds: { readonly prefillTokensPerS: number; readonly decodeTokensPerS: number } | null
}

export const probesPath = (): string => join(cacheDirectory(process.env), PROBES_FILE)

/** The newest last; none where the file is not there or not readable, which the next probe writes anew. */
export function probeAnswers(): readonly ProbeAnswer[] {
  const path = probesPath()
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
  const [, modelDigest, library, cpuKernel, , attention, weights, lanes, laneTokens, chunkTokens, threads, kvTypes = 'f16,f16', gpu = 'cpu', rows = 'rows1'] = entry[0].split('/')
  const said: unknown = entry[1]
  if (modelDigest === undefined || library === undefined || cpuKernel === undefined) return []
  if (typeof said !== 'object' || said === null || !('answer' in said) || !('because' in said)) return []
  return [{
    modelDigest, library, cpuKernel, flashAttention: attention === 'fa64' ? 'exact' : attention === 'fa', extraBuffers: weights === 'repacked',
    lanes: Number(lanes), laneTokens: Number(laneTokens), chunkTokens: Number(chunkTokens), threads: Number(threads), kvTypes, gpu, rowUnit: Number(rows.slice('rows'.length)),
    answer: String(said.answer), because: String(said.because), speeds: speedsOf(said),
  }]
}

function speedsOf(said: object): ProbeAnswer['speeds'] {
  if (!('prefillTokensPerS' in said) || !('decodeTokensPerS' in said)) return null
  const { prefillTokensPerS, decodeTokensPerS } = said
  if (typeof prefillTokensPerS !== 'number' || typeof decodeTokensPerS !== 'number') return null
  return prefillTokensPerS > 0 && decodeTokensPerS > 0 ? { prefillTokensPerS, decodeTokensPerS } : null
}
