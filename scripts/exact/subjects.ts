/** Owns which models the exactness cases are played on, how many cases are wanted of each, and in which settings. */
import { mkdirSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { cacheDirectory } from '../../src/models/cache.ts'
import { LOCAL_FOLDER } from '../../src/models/cached.ts'
import { resolveModel } from '../../src/models/resolve.ts'
import { REAL, TINY } from '../../test/engine/exact-plot.ts'
import type { Scale } from '../../test/engine/exact-plot.ts'
import { SHAPES, writeShape } from '../../test/models/shapes.ts'

export interface Subject {
  readonly name: string
  readonly path: string
  readonly scale: Scale
  readonly laneTokens: number
  /** Cases, over all runs. */
  readonly wanted: number
  /** Of the time of a run, beside the others'. */
  readonly share: number
}

const DEFAULT_CASES = 2_000
const QUANTISATION_CASES = 100
const TINY_CASES = 20_000
const TINY_LANE_TOKENS = 2_048
const REAL_LANE_TOKENS = 1_024
/** The default model's stem, whatever it is quantised as. */
const FAMILY = /^SmolLM2-135M-Instruct\./

/** `names`: null for all; else of them only, which may be any model that can be resolved. */
export async function subjectsOf(names: readonly string[] | null, folder: string): Promise<readonly Subject[]> {
  const tinies = ['tiny', ...SHAPES]
  const wanted = names ?? ['default', ...tinies, ...quantisations()]
  const subjects: Subject[] = []
  for (const name of wanted) {
    const isTiny = tinies.includes(name)
    subjects.push({
      name, path: await pathOf(name, folder), scale: isTiny ? TINY : REAL, laneTokens: isTiny ? TINY_LANE_TOKENS : REAL_LANE_TOKENS,
      wanted: name === 'default' ? DEFAULT_CASES : isTiny ? Math.ceil(TINY_CASES / tinies.length) : QUANTISATION_CASES,
      share: name === 'default' ? 6 : 1,
    })
  }
  return subjects
}

async function pathOf(name: string, folder: string): Promise<string> {
  const shape = SHAPES.find((one) => one === name)
  if (shape === undefined) return (await resolveModel({ model: name, env: process.env })).path
  const path = join(folder, `${shape}.gguf`)
  writeShape(path, shape)
  return path
}

/** Those that `npm run quantise` has made. */
function quantisations(): readonly string[] {
  const local = join(cacheDirectory(process.env), LOCAL_FOLDER)
  mkdirSync(local, { recursive: true })
  return readdirSync(local).filter((name) => FAMILY.test(name) && name.endsWith('.gguf')).map((name) => name.slice(0, -'.gguf'.length)).sort()
}
