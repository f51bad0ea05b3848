/**
 * `npm run soak:server`: a whole server under agents that never rest. Each plays a plot (tool loops with waits, chats,
 * forks, forms), hangs up, cancels, leaves; engines and now and then the server itself are killed. Every finished call
 * is compared with the same call alone on a server that nothing disturbs; at quiet points nothing may be held. Exit code 1
 * where a call differs, a client sees an error that nothing explains, or something is leaked.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { Draw } from '../src/eval/draw.ts'
import { House, type HouseOptions } from './soak-server/house.ts'
import { play, type Told } from './soak-server/player.ts'
import { plotOf, type Plot, type Scale } from './soak-server/plot.ts'
import { lookAt } from './soak-server/quiet.ts'
import { Tally } from './soak-server/tally.ts'

const USAGE = 'npm run soak:server -- [--minutes 60] [--agents 8] [--plots 60] [--kill-every 60] [--quiet-every 600] [--seed 1] [--model tiny|default|PATH] [--json FILE]'
const TENANTS = [
  { name: 'red', key: 'soak-red-key', class: 'interactive' },
  { name: 'green', key: 'soak-green-key', class: 'default' },
  { name: 'blue', key: 'soak-blue-key', class: 'batch' },
]
/** Every so manieth kill is the server's, with its engines. */
const SERVER_EVERY_KILLS = 4
const TINY: Scale = { openingWords: 60, outputTokens: 160, asks: 5, waitMs: 400 }
/** A model that is some ten times slower, for plots to end. */
const REAL: Scale = { openingWords: 60, outputTokens: 40, asks: 4, waitMs: 2_000 }
/** What is kept for a while is gone soon after, so that a quiet point comes to an end. */
const CORE = { sessionRetentionSeconds: 30, programIdleSeconds: 15, interruptMaxSeconds: 45, hostMiBMax: 64 }
const FAULTS_MAX = 20

async function main(): Promise<number> {
  const { values } = parseArgs({ options: {
    'minutes': { type: 'string', default: '60' }, 'agents': { type: 'string', default: '8' }, 'plots': { type: 'string', default: '60' }, 'kill-every': { type: 'string', default: '60' },
    'quiet-every': { type: 'string', default: '600' }, 'seed': { type: 'string', default: '1' }, 'model': { type: 'string', default: 'tiny' }, 'json': { type: 'string' }, 'help': { type: 'boolean', default: false },
  } })
  const [minutes = 0, agents = 0, plots = 0, killEveryS = 0, quietEveryS = 0, seed = 0] = [values.minutes, values.agents, values.plots, values['kill-every'], values['quiet-every'], values.seed].map(Number)
  if (values.help || ![minutes, agents, plots, killEveryS, quietEveryS, seed].every((value) => value > 0)) {
    say(USAGE)
    return values.help ? 0 : 2
  }
  const scale = values.model === 'tiny' ? TINY : REAL
  const drawn = Array.from({ length: plots }, (_, number) => plotOf(seed, number, TENANTS.length, scale))
  const folder = mkdtempSync(join(tmpdir(), 'entracte-soak-'))
  const tally = new Tally()
  try {
    await playAlone(drawn, values.model, join(folder, 'alone'), tally)
    await new Soak(houseOf(join(folder, 'soaked'), values.model, ['a', 'b'], 3, CORE), drawn, tally).run({ minutes, agents, killEveryS, quietEveryS, seed })
  } finally {
    say(tally.report())
    if (values.json !== undefined) writeFileSync(values.json, `${JSON.stringify(tally.figures, null, 2)}\n`)
    if (tally.isClean) rmSync(folder, { recursive: true, force: true })
    else note(`its folder is kept: ${folder}`)
  }
  return tally.isClean ? 0 : 1
}

const houseOf = (folder: string, model: string, engines: readonly string[], lanes: number, core: object): HouseOptions =>
  ({ folder, model, engines, lanes, laneTokens: 2_048, tenants: TENANTS, core: { ...core } })

/** One plot after another on a server that keeps everything where it is. */
async function playAlone(plots: readonly Plot[], model: string, folder: string, tally: Tally): Promise<void> {
  const house = new House(houseOf(folder, model, ['quiet'], 2, { residency: 'always-preserve' }))
  await house.start()
  const told: Told = { finished: (plot, part, said) => tally.alone(plot, part, said), troubled: () => undefined, mayBeCut: () => false }
  try {
    for (const plot of plots) await play(plot, house.place(plot.tenant), house.model, `alone-${plot.number}`, null, told)
  } finally {
    await house.stop('SIGTERM')
  }
  note(`${plots.length} plots were played alone`)
}

interface Span { readonly minutes: number; readonly agents: number; readonly killEveryS: number; readonly quietEveryS: number; readonly seed: number }

class Soak {
  readonly #house: House
  readonly #options: HouseOptions
  readonly #plots: readonly Plot[]
  readonly #tally: Tally
  #played = 0
  #kills = 0

  constructor(options: HouseOptions, plots: readonly Plot[], tally: Tally) {
    this.#options = options
    this.#house = new House(options)
    this.#plots = plots
    this.#tally = tally
  }

  async run({ minutes, agents, killEveryS, quietEveryS, seed }: Span): Promise<void> {
    const begunMs = performance.now()
    const spentS = (): number => Math.round((performance.now() - begunMs) / 1_000)
    await this.#house.start()
    try {
      await this.#quiet(spentS())
      while (spentS() < minutes * 60 && this.#tally.faults.length < FAULTS_MAX) {
        const untilS = Math.min(minutes * 60, spentS() + quietEveryS)
        const isOver = (): boolean => spentS() >= untilS || this.#tally.faults.length >= FAULTS_MAX
        await Promise.all([this.#kill(killEveryS, isOver), ...Array.from({ length: agents }, (_, agent) => this.#agent(seed, agent, isOver))])
        await this.#quiet(spentS())
        note(`${spentS()} s: ${this.#played} plots played, ${this.#kills} kills, ${this.#tally.differences.length} differences, ${this.#tally.faults.length} faults, ${this.#tally.leaks.length} leaks`)
      }
    } finally {
      await this.#house.stop('SIGTERM')
    }
  }

  async #quiet(afterS: number): Promise<void> {
    const first = this.#tally.quiets[0]?.usages ?? null
    this.#tally.quiets.push(await lookAt(this.#house, this.#options.folder, afterS, first))
  }

  async #agent(seed: number, agent: number, isOver: () => boolean): Promise<void> {
    while (!isOver()) {
      const number = this.#played
      this.#played += 1
      const draw = Draw.of(seed, `agent ${agent} ${number}`)
      const plot = draw.pick(this.#plots)
      try {
        await play(plot, this.#house.place(plot.tenant), this.#house.model, `p-${number}`, draw, this.#told())
        this.#tally.add('plots played')
      } catch (error) {
        this.#tally.fault(`p-${number} (plot ${plot.number}, ${plot.shape}): ${error instanceof Error ? error.message : String(error)}`)
        note(this.#tally.faults.at(-1) ?? '')
      }
    }
  }

  #told(): Told {
    return {
      finished: (plot, part, said) => this.#tally.finished(plot, part, said),
      troubled: (kind) => this.#tally.add(`client: ${kind}`),
      mayBeCut: (code) => {
        this.#tally.add(`cut off: ${code}`)
        return !this.#house.isWhole
      },
    }
  }

  async #kill(everyS: number, isOver: () => boolean): Promise<void> {
    for (let nextMs = performance.now() + everyS * 1_000; !isOver();) {
      if (performance.now() < nextMs) {
        await sleep(200)
        continue
      }
      nextMs = performance.now() + everyS * 1_000
      this.#kills += 1
      if (this.#kills % SERVER_EVERY_KILLS === 0) {
        this.#tally.add('kills: server')
        await this.#house.stop('SIGKILL')
        await this.#house.start()
        continue
      }
      const engine = this.#house.engines[(this.#kills - Math.floor(this.#kills / SERVER_EVERY_KILLS)) % this.#house.engines.length] ?? ''
      this.#tally.add(`kills: engine ${engine}`)
      await this.#house.killEngine(engine)
    }
  }
}

const say = (text: string): void => { process.stdout.write(`${text}\n`) }
const note = (text: string): void => { process.stderr.write(`${text}\n`) }

process.exitCode = await main()
