import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { drawRound, LANES, PATHS } from '../../scripts/exact/cases.ts'
import { playRound, type CaseResult } from '../../scripts/exact/round.ts'
import { AloneStage, CompanyStage } from '../../scripts/exact/stages.ts'
import { add, casesOf, failuresOf, fresh, TotalsFile } from '../../scripts/exact/totals.ts'
import type { EngineSettings } from '../../src/engines/embedded-words.ts'
import { tinyModel } from '../real-model.ts'
import { writeShape } from '../models/shapes.ts'
import { TINY } from './exact-plot.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-rounds-'))
after(() => rmSync(folder, { recursive: true, force: true }))

/** A round of each sort: several paths, and one whose engine is killed. */
const SEEDS: readonly number[] = [11, 24]

const settingsOf = (modelPath: string): EngineSettings => ({
  modelPath, lanes: LANES, laneTokens: 2_048, threads: 1, chunkTokens: 32, flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: null, probe: false,
})

async function played(alonePath: string, seeds: readonly number[]): Promise<readonly CaseResult[]> {
  const folders = { host: join(folder, 'host'), disk: join(folder, 'disk') }
  for (const each of Object.values(folders)) mkdirSync(each, { recursive: true })
  const alone = await AloneStage.open(settingsOf(alonePath), folders)
  const company = await CompanyStage.open(settingsOf(await tinyModel()), folders)
  try {
    const results: CaseResult[] = []
    for (const seed of seeds) results.push(...await playRound(drawRound(seed, TINY, true), alone, company))
    return results
  } finally {
    await Promise.all([alone.close(), company.close()])
  }
}

test('cases on engines that are processes, one of them killed on the way, are as they were alone', async () => {
  const results = await played(await tinyModel(), SEEDS)
  assert.deepEqual(results.map(({ difference }) => difference).filter((difference) => difference !== ''), [])
  assert.ok(results.every(({ sameTokens, sameBytes, tokens }) => sameTokens && sameBytes && tokens > 0))
  const paths = new Set(results.map(({ path }) => path))
  assert.ok(paths.has('kill') && paths.size > 5, [...paths].join(' '))
})

test('a case that is not as it was alone is told and counted', async () => {
  const other = join(folder, 'grouped.gguf')
  writeShape(other, 'grouped')
  const results = await played(other, [9])
  assert.ok(results.length > 0 && results.every(({ sameTokens, sameBytes }) => !sameTokens && !sameBytes))
  assert.match(results[0]?.difference ?? '', /^seed 9, case 0 /)
  const totals = fresh({ model: 'm', settings: 's', exact: 'yes' })
  add(totals, results)
  assert.deepEqual([casesOf(totals), failuresOf(totals)], [results.length, results.length])
})

test('counts add up over runs, each of its own kind', () => {
  const path = join(folder, 'counts.json')
  const result = (of: CaseResult['path'], sameTokens: boolean): CaseResult =>
    ({ path: of, company: 3, calls: 2, tokens: 10, sameTokens, sameBytes: true, difference: '' })
  for (let run = 0; run < 2; run++) {
    const file = new TotalsFile(path)
    add(file.of('k', { model: 'm', settings: 's', exact: 'no' }), [result('host', true), result('discard', false)])
    file.write()
  }
  const [totals] = new TotalsFile(path).all()
  assert.ok(totals !== undefined)
  assert.deepEqual(totals.paths, { host: { cases: 2, tokensDiffer: 0, bytesDiffer: 0 }, discard: { cases: 2, tokensDiffer: 2, bytesDiffer: 0 } })
  assert.deepEqual([totals.calls, totals.tokens, totals.company], [8, 40, { 3: 4 }])
})

test('every path is drawn, and none that needs an image where there is none', () => {
  const drawn = (images: boolean): Set<string> => new Set(Array.from({ length: 40 }, (_, seed) => drawRound(seed + 1, TINY, images).cases.map(({ path }) => path)).flat())
  assert.deepEqual([...drawn(true)].sort(), [...PATHS].sort())
  assert.deepEqual([...drawn(false)].sort(), PATHS.filter((path) => path !== 'host' && path !== 'disk').sort())
})
