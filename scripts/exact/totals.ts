/** Owns the file of counts that exactness cases add up in, over runs: by model and settings, path and company. */
import { existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { columns } from '../../src/core/explain/explain-text.ts'
import { PATHS, type Path } from './cases.ts'
import type { CaseResult } from './round.ts'

interface Count { cases: number; tokensDiffer: number; bytesDiffer: number }

export interface Totals {
  readonly model: string
  readonly settings: string
  /** What the probe says of these settings. */
  readonly exact: string
  /** Rounds before this one were played. */
  nextSeed: number
  calls: number
  tokens: number
  readonly paths: Partial<Record<Path, Count>>
  /** Cases by how many others were played at the same time. */
  readonly company: Record<string, number>
}

const VERSION = 1

export class TotalsFile {
  readonly #path: string
  readonly #all: Map<string, Totals>

  constructor(path: string) {
    this.#path = path
    this.#all = new Map(existsSync(path) ? read(path) : [])
  }

  /** Made where there is none; `key` names all that the answer depends on. */
  of(key: string, made: Pick<Totals, 'model' | 'settings' | 'exact'>): Totals {
    const known = this.#all.get(key) ?? fresh(made)
    this.#all.set(key, known)
    return known
  }

  all(): readonly Totals[] {
    return [...this.#all.values()]
  }

  write(): void {
    mkdirSync(dirname(this.#path), { recursive: true })
    const partial = `${this.#path}.${process.pid}.partial`
    writeFileSync(partial, `${JSON.stringify({ version: VERSION, totals: [...this.#all] }, null, 1)}\n`)
    renameSync(partial, this.#path)
  }
}

/** Counts of nothing yet, in no file. */
export const fresh = (made: Pick<Totals, 'model' | 'settings' | 'exact'>): Totals =>
  ({ ...made, nextSeed: 1, calls: 0, tokens: 0, paths: {}, company: {} })

function read(path: string): readonly (readonly [string, Totals])[] {
  const file = JSON.parse(readFileSync(path, 'utf8')) as { readonly version: number; readonly totals: readonly (readonly [string, Totals])[] }
  if (file.version === VERSION) return file.totals
  throw new Error(`${path} has version ${file.version} of counts, and this is ${VERSION}: name another file by --out`)
}

export function add(totals: Totals, results: readonly CaseResult[]): void {
  for (const { path, company, calls, tokens, sameTokens, sameBytes } of results) {
    const count = totals.paths[path] ??= { cases: 0, tokensDiffer: 0, bytesDiffer: 0 }
    count.cases++
    if (!sameTokens) count.tokensDiffer++
    if (!sameBytes) count.bytesDiffer++
    totals.company[company] = (totals.company[company] ?? 0) + 1
    totals.calls += calls
    totals.tokens += tokens
  }
}

export const casesOf = ({ paths }: Totals): number => Object.values(paths).reduce((sum, { cases }) => sum + cases, 0)
export const failuresOf = ({ paths }: Totals): number =>
  Object.values(paths).reduce((sum, { tokensDiffer, bytesDiffer }) => sum + Math.max(tokensDiffer, bytesDiffer), 0)

// ---------------------------------------------------------------- telling

/** Recomputing is all that feeds a token again. */
const RECOMPUTES: readonly Path[] = ['discard', 'kill']

export function tableOf(all: readonly Totals[]): string {
  return columns([
    ['model', 'settings', 'exact', 'cases', 'tokens', ...PATHS, 'differ'],
    ...all.map((totals) => [
      totals.model, totals.settings, totals.exact, String(casesOf(totals)), String(totals.tokens),
      ...PATHS.map((path) => cellOf(totals.paths[path])), String(failuresOf(totals)),
    ]),
  ], `lll${'r'.repeat(PATHS.length + 3)}`).join('\n')
}

/** Cases, and after a bar those whose tokens differ. */
const cellOf = (count: Count | undefined): string =>
  count === undefined ? '0' : count.tokensDiffer === 0 ? String(count.cases) : `${count.cases}|${count.tokensDiffer}`

/** Where the probe says no: what a recompute is worth beside what company alone does. */
export function divergence(totals: Totals): string {
  const share = (paths: readonly Path[]): string => {
    const counts = paths.flatMap((path) => totals.paths[path] ?? [])
    const cases = counts.reduce((sum, count) => sum + count.cases, 0)
    const differ = counts.reduce((sum, count) => sum + count.tokensDiffer, 0)
    return `${differ} of ${cases} (${cases === 0 ? '-' : Math.round((100 * differ) / cases)} %)`
  }
  return `${totals.model}, ${totals.settings}: recomputed, ${share(RECOMPUTES)} diverge; undisturbed in other company, ${share(['preserve', 'prefix'])}`
}
