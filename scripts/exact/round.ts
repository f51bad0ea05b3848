/** Owns playing a round: its contents alone, its cases in company, and what of a case is not as it was alone. */
import assert from 'node:assert/strict'
import type { ProgramPlot } from '../../test/engine/exact-plot.ts'
import { ProgramPlay } from '../../test/engine/exact-program.ts'
import type { ProgramResult } from '../../test/engine/exact-program.ts'
import { wentItsPath, type CasePlot, type Content, type Path, type Round } from './cases.ts'
import type { AloneStage, CompanyStage } from './stages.ts'

export interface CaseResult {
  /** The path it went: a case that nothing was done to was preserved. */
  readonly path: Path
  /** Others that were played at the same time. */
  readonly company: number
  readonly calls: number
  readonly tokens: number
  /** Every token, shown part, origin and finish. */
  readonly sameTokens: boolean
  /** Every byte of KV at the end. */
  readonly sameBytes: boolean
  /** What differs; empty where nothing does. */
  readonly difference: string
}

interface Expected { readonly plot: ProgramResult; readonly other: ProgramResult | null }

export async function playRound(round: Round, alone: AloneStage, company: CompanyStage): Promise<readonly CaseResult[]> {
  const forked = new Set(round.cases.filter(({ path }) => path === 'fork').map(({ content }) => content))
  const [expected, played] = await Promise.all([playAlone(round, forked, alone), playTogether(round, company)])
  alone.clear()
  company.clear()
  return played.flatMap(({ path, content, index, happened, results }) => {
    const want = expected[content]
    assert(want !== undefined)
    const wants = results.length === 1 ? [want.plot] : [want.plot, want.other]
    return results.map((result, which): CaseResult => {
      const wanted = wants[which] ?? null
      assert(wanted !== null)
      const difference = differenceOf(result, wanted)
      return {
        path: wentItsPath(path, happened) ? path : 'preserve',
        company: round.cases.length - 1,
        calls: result.calls.length,
        tokens: result.calls.reduce((sum, call) => sum + call.tokens.length, 0),
        sameTokens: isSame(result.calls, wanted.calls),
        sameBytes: isSame(result.chunks, wanted.chunks),
        difference: difference === '' ? '' : `seed ${round.seed}, case ${index} (${path}; ${JSON.stringify(happened)}): ${difference}`,
      }
    })
  })
}

async function playAlone(round: Round, forked: ReadonlySet<number>, stage: AloneStage): Promise<readonly Expected[]> {
  const expected: Expected[] = []
  const once = (plot: ProgramPlot): Promise<ProgramResult> => new ProgramPlay(stage, plot).run()
  for (const [index, { plot, other }] of round.contents.entries()) {
    expected.push({ plot: await once(plot), other: forked.has(index) ? await once(other) : null })
  }
  return expected
}

interface Played extends CasePlot {
  readonly index: number
  readonly happened: Readonly<Record<string, number>>
  /** Two where it forked. */
  readonly results: readonly ProgramResult[]
}

async function playTogether({ cases, contents }: Round, stage: CompanyStage): Promise<readonly Played[]> {
  const plays = cases.map(({ plot }, index) => new ProgramPlay(stage, plot, `p${index}`))
  return await Promise.all(cases.map(async (one, index): Promise<Played> => {
    const play = plays[index]
    const content = contents[one.content]
    assert(play !== undefined && content !== undefined)
    const twin = one.path === 'prefix' ? plays[twinOf(cases, index)] : undefined
    await twin?.fed
    const results = one.path === 'fork' ? await play.runForked(otherOf(one, content)) : [await play.run()]
    return { ...one, index, happened: play.happened, results }
  }))
}

/** The first case of the same content, where another one is that and waits for nobody; else one that is not there. */
const twinOf = (cases: readonly CasePlot[], index: number): number =>
  cases.findIndex(({ content, path }, at) => at !== index && content === cases[index]?.content && path !== 'prefix')

const otherOf = ({ plot }: CasePlot, { other }: Content): ProgramPlot => ({ ...other, tier: plot.tier })

function differenceOf(seen: ProgramResult, wanted: ProgramResult): string {
  try {
    assert.deepEqual(seen, wanted)
    return ''
  } catch (error) {
    return error instanceof Error ? error.message : String(error)
  }
}

function isSame(seen: unknown, wanted: unknown): boolean {
  return JSON.stringify(seen) === JSON.stringify(wanted)
}
