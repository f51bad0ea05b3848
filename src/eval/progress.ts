/** Owns what is seen while the mix runs: one block redrawn in place on a terminal, plain lines elsewhere. */
import type { AgentStep } from './agent-record.ts'

export interface Screen {
  write(text: string): void
  /** A terminal whose lines can be drawn again. */
  readonly redraws: boolean
  readonly columns: number
}

const REDRAW_MS = 250
const NAME_WIDTH = 9

type Place = 'to come' | AgentStep['kind']

interface Row {
  place: Place
  call: number
  readonly calls: number
  tool: string | null
  sinceMs: number
  startedMs: number | null
  endedMs: number | null
}

export class Progress {
  readonly #screen: Screen
  readonly #title: string
  readonly #rows: ReadonlyMap<string, Row>
  readonly #beganAt = performance.now()
  readonly #timer: NodeJS.Timeout | null
  #drawn = 0

  constructor(screen: Screen, title: string, programs: readonly { readonly name: string; readonly calls: number }[]) {
    this.#screen = screen
    this.#title = title
    this.#rows = new Map(programs.map(({ name, calls }) => [name, {
      place: 'to come', call: 0, calls, tool: null, sinceMs: 0, startedMs: null, endedMs: null,
    }]))
    if (!screen.redraws) screen.write(`${title}\n`)
    this.#timer = screen.redraws ? setInterval(() => this.#draw(), REDRAW_MS) : null
    this.#draw()
  }

  step(step: AgentStep, atMs: number): void {
    const row = this.#rows.get(step.program)
    if (row === undefined) return
    row.startedMs ??= atMs
    const ended = step.kind === 'done' || step.kind === 'failed'
    Object.assign(row, { place: step.kind, call: step.call, tool: step.tool, sinceMs: atMs, endedMs: ended ? atMs : null })
    if (!this.#screen.redraws && ended) this.#screen.write(`${this.#ended(step.program, row, atMs)}\n`)
  }

  /** Leaves what was seen last on the screen. */
  end(): void {
    if (this.#timer !== null) clearInterval(this.#timer)
    this.#draw()
    if (this.#drawn > 0) this.#screen.write('\n')
    this.#drawn = 0
  }

  #ended(name: string, row: Row, atMs: number): string {
    const left = [...this.#rows.values()].filter(({ endedMs }) => endedMs === null).length
    const took = atMs - (row.startedMs ?? atMs)
    return `  ${seconds(atMs).padStart(7)}  ${name.padEnd(NAME_WIDTH)} ${row.place} after ${seconds(took)}, ${row.calls} calls; ${left} to go`
  }

  #draw(): void {
    if (!this.#screen.redraws) return
    const nowMs = performance.now() - this.#beganAt
    const rows = [...this.#rows].map(([name, row]) => this.#line(name, row, nowMs))
    const done = [...this.#rows.values()].filter(({ endedMs }) => endedMs !== null).length
    const lines = [`${this.#title}  ${seconds(nowMs)}, ${done} of ${this.#rows.size} programs done`, ...rows]
    const up = this.#drawn > 0 ? `\x1b[${this.#drawn}A` : ''
    this.#screen.write(up + lines.map((line) => `\x1b[2K${line.slice(0, this.#screen.columns - 1)}\n`).join(''))
    this.#drawn = lines.length
  }

  #line(name: string, row: Row, nowMs: number): string {
    const bar = `${'■'.repeat(row.call)}${'□'.repeat(Math.max(0, row.calls - row.call))}`
    const took = row.startedMs === null ? '' : seconds((row.endedMs ?? nowMs) - row.startedMs)
    return `  ${name.padEnd(NAME_WIDTH)} ${bar.padEnd(8)}  ${took.padStart(7)}  ${wordsOf(row, nowMs)}`
  }
}

function wordsOf(row: Row, nowMs: number): string {
  switch (row.place) {
    case 'to come': return ''
    case 'asking': return `model ${seconds(nowMs - row.sinceMs)}`
    case 'tool': return `${row.tool ?? 'tool'} ${seconds(nowMs - row.sinceMs)}`
    case 'done': case 'failed': return row.place
  }
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(1)} s`
