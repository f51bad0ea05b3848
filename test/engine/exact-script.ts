/**
 * The exactness test: a script of programs is played alone and undisturbed, then again in company with pauses, moves,
 * discards, cancelled attempts and killed engines; every token, every shown part, every span and every byte of KV must
 * be the same. It plays the control plane's part: it knows of a State only what the engine told it.
 */
import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EngineUnderTest, PROVEN } from './engine-under-test.ts'
import type { EngineShape } from './engine-under-test.ts'
import { drawPlot } from './exact-plot.ts'
import type { Plot, ProgramPlot, Scale } from './exact-plot.ts'
import { ProgramPlay } from './exact-program.ts'
import type { ProgramResult, Stage } from './exact-program.ts'
import { Killed } from './played-engine.ts'

export interface ExactOptions {
  readonly modelPath: string
  readonly scale: Scale
  readonly laneTokens: number
  readonly threads: number
  /** For images; emptied at the end. */
  readonly directory: string
}

export interface ScriptResult {
  readonly seed: number
  readonly calls: number
  readonly tokens: number
  readonly disturbed: Readonly<Record<string, number>>
  /** Empty: everything was equal. */
  readonly differences: readonly string[]
}

export async function runScript(seed: number, options: ExactOptions): Promise<ScriptResult> {
  const plot = drawPlot(seed, options.scale)
  mkdirSync(options.directory, { recursive: true })
  const alone = new Play(plot, options, true)
  const expected = await alone.run()
  const company = new Play(plot, options, false)
  const seen = await company.run()
  rmSync(options.directory, { recursive: true, force: true })
  const calls = expected.flatMap((program) => program.calls)
  return {
    seed,
    calls: calls.length,
    tokens: calls.reduce((sum, call) => sum + call.tokens.length, 0),
    disturbed: company.disturbed,
    differences: plot.programs.flatMap((program, i) => compare(`seed ${seed} ${program.name}`, expected[i], seen[i])),
  }
}

/** Plays scripts one after another; throws at the first that differs, and counts what was done to all of them. */
export async function allEqual(
  firstSeed: number, scripts: number, options: Omit<ExactOptions, 'directory'>,
): Promise<Record<string, number>> {
  const directory = mkdtempSync(join(tmpdir(), 'entracte-exact-'))
  const disturbed: Record<string, number> = {}
  try {
    for (let seed = firstSeed; seed < firstSeed + scripts; seed++) {
      const result = await runScript(seed, { ...options, directory })
      assert.deepEqual(result.differences, [])
      add(disturbed, result.disturbed)
    }
  } finally {
    rmSync(directory, { recursive: true, force: true })
  }
  return disturbed
}

function compare(name: string, expected: ProgramResult | undefined, seen: ProgramResult | undefined): string[] {
  try {
    assert.deepEqual(seen, expected)
    return []
  } catch (error) {
    return [`${name}: ${error instanceof Error ? error.message : String(error)}`]
  }
}

/** One performance of a script. */
class Play implements Stage {
  readonly plot: Plot
  readonly options: ExactOptions
  readonly calm: boolean
  readonly disturbed: Record<string, number> = {}
  #engine: EngineUnderTest
  #reign = 1
  #restarting: Promise<void> | null = null
  #over = false

  constructor(plot: Plot, options: ExactOptions, calm: boolean) {
    this.plot = plot
    this.options = options
    this.calm = calm
    this.#engine = new EngineUnderTest(this.#shape(), this.#reign)
  }

  async run(): Promise<ProgramResult[]> {
    const programs = this.plot.programs.map((program) => new ProgramPlay(this, program))
    try {
      const results: ProgramResult[] = []
      if (this.calm) for (const program of programs) results.push(await program.stay())
      else {
        const squatting = this.#squat()
        results.push(...await Promise.all(programs.map((program) => program.stay())))
        await squatting
      }
      return results
    } finally {
      for (const { happened } of programs) add(this.disturbed, happened)
      this.#over = true
      await this.#engine.kill()
    }
  }

  get reign(): number {
    return this.#reign
  }

  engine(): EngineUnderTest {
    return this.#engine
  }

  directory(): string {
    return this.options.directory
  }

  /** Another engine takes over: other chunks, other lanes, nothing on device. */
  async kill(): Promise<void> {
    this.#restarting ??= this.#restart().finally(() => { this.#restarting = null })
    await this.#restarting
  }

  async ready(): Promise<void> {
    await this.#restarting
    if (this.#over) throw new Error('the play is over')
  }

  async #restart(): Promise<void> {
    await this.#engine.kill()
    this.#engine = new EngineUnderTest(this.#shape(), ++this.#reign)
  }

  #shape(): EngineShape {
    const { modelPath, laneTokens, threads } = this.options
    const { lanes, chunkTokens } = this.plot
    const shape = { modelPath, laneTokens, threads, flashAttention: false, exact: PROVEN }
    if (this.calm) return { ...shape, lanes, chunkTokens: 64 }
    return { ...shape, lanes: lanes + (this.#reign - 1), chunkTokens: chunkTokens + 3 * (this.#reign - 1) }
  }

  /** Strangers in lanes, so that the programs' lanes have gaps. */
  async #squat(): Promise<void> {
    for (const [i, leaves] of this.plot.squatters.entries()) {
      const stranger: ProgramPlot = {
        name: `stranger${i}`, system: 'x', tools: [], delay: 0, tier: 'host',
        calls: [{
          says: 'hello', forced: false, sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], seed: 1,
          maxTokens: 3, disturbances: [], after: 'keep', usesImage: false, rank: 5,
        }],
      }
      const play = new ProgramPlay(this, stranger)
      try {
        await (leaves ? play.run() : play.stay())
      } catch (error) {
        if (!(error instanceof Killed)) throw error
      }
    }
  }
}

function add(into: Record<string, number>, more: Readonly<Record<string, number>>): void {
  for (const [kind, count] of Object.entries(more)) into[kind] = (into[kind] ?? 0) + count
}
