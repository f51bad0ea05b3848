/**
 * Owns what is to be done between two batches: everything that has come, in its order. Copies of States alone have a
 * budget: once they took `copiesMsMax`, the next of them, and all behind it, waits for a batch, where somebody runs. One
 * copy is never cut in pieces, since the library copies a State at once.
 */
interface Task { readonly run: () => void; readonly copies: boolean }

export class Inbox {
  readonly #copiesMsMax: number
  readonly #tasks: Task[] = []

  constructor(copiesMsMax: number) {
    this.#copiesMsMax = copiesMsMax
  }

  get isEmpty(): boolean {
    return this.#tasks.length === 0
  }

  /** `copies`: it copies a State. */
  put(run: () => void, copies: boolean): void {
    this.#tasks.push({ run, copies })
  }

  /** `isBusy`: somebody waits for the next batch. */
  empty(isBusy: () => boolean): void {
    let copiedMs = 0
    for (let next = this.#tasks[0]; next !== undefined; next = this.#tasks[0]) {
      if (next.copies && copiedMs > 0 && copiedMs >= this.#copiesMsMax && isBusy()) return
      this.#tasks.shift()
      const begunMs = performance.now()
      next.run()
      if (next.copies) copiedMs += performance.now() - begunMs
    }
  }
}
