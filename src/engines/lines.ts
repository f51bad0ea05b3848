/** Owns the cutting of what a process says into lines, however it comes in. Empty ones are left out. */

/** A longer line is said in parts. */
const LINE_CHARS_MAX = 10_000

export class Lines {
  readonly #say: (line: string) => void
  #begun = ''

  constructor(say: (line: string) => void) {
    this.#say = say
  }

  push(text: string): void {
    const lines = (this.#begun + text).split('\n')
    this.#begun = lines.pop() ?? ''
    for (const line of lines) if (line.trim() !== '') this.#say(line)
    if (this.#begun.length > LINE_CHARS_MAX) this.end()
  }

  /** What has no end of its line ends here. */
  end(): void {
    const line = this.#begun
    this.#begun = ''
    if (line.trim() !== '') this.#say(line)
  }
}
