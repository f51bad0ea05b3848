/**
 * Owns how many threads compute the next batch. The library's threads wait for each other by spinning, some hundred times
 * a batch: on a free machine every core more is faster, and on a busy one a thread that has lost its processor holds up
 * all the others, so that two are slower than one, four times and more. Which it is, is found out by trying: now and then
 * a few batches run with another number, beside like batches with this one, and the faster number stays.
 *
 * T1 no more than the operator allows, and no less than one.
 * T2 a number that lost is tried again ever more rarely, and sooner when batches take another time than they used to.
 *
 * The number of threads changes no bit where flash attention is off (E1); who has it on keeps to one number.
 */

/** Batches that are timed in a trial, and the last ones before it; of each the median counts, since a busy machine jitters. */
const TRIAL_BATCHES = 3
const RECENT_BATCHES = 9
/** A trial in which so many batches were like none before it comes to nothing. */
const TRIAL_BATCHES_MAX = 12
/** Batches between two trials, at first and at most. */
const WAIT_BATCHES = 8
const WAIT_BATCHES_MAX = 2_048
/** After a trial that lost, this many batches for each that its slowest one took: what trials cost stays a few hundredths. */
const WAIT_PER_LOST = 32
/** Parts of the wait that are left where batches take longer than they used to and fewer threads may help, or less long. */
const WAIT_PART_SLOWER = 1 / 64
const WAIT_PART_FASTER = 1 / 8
/** Times longer or shorter by this factor are others than they used to be. */
const CHANGED = 1.5
/** The other number stays where it takes less than this part of the time. */
const FASTER = 0.95
/** How far what is usual goes towards a time, in parts of itself: so it comes to the median, whatever single ones take. */
const USUAL_STEP = 0.05
/** Shapes of batches whose times are known. */
const SHAPES_MAX = 256

export class Threads {
  /** What may be chosen, most first. */
  readonly #numbers: readonly number[]
  #at = 0
  /** Index of what is being tried. */
  #trying: number | null = null
  /** Index of what was tried last: each has its turn. */
  #next = 0
  /** What a batch of a shape takes with this number; only like batches are compared. */
  readonly #usualNs = new Map<string, number>()
  /** What the last batches took over what is usual, and the same of the trial. */
  #recent: number[] = []
  #trial: number[] = []
  /** Batches since the last trial, or in this one. */
  #batches = 0
  #wait = WAIT_BATCHES

  /** `most`: what the operator allows; `varies`: whether it may be less. */
  constructor(most: number, varies: boolean) {
    const numbers = varies ? [most, most - 1, most >> 1, 1] : [most]
    this.#numbers = [...new Set(numbers)].filter((number) => number > 0)
  }

  /** For the next batch. */
  get count(): number {
    return this.#numbers[this.#trying ?? this.#at] ?? 1
  }

  /** Told of every batch. `shape`: what it must have in common with another to be compared with it. */
  took(shape: string, ns: number): void {
    if (this.#numbers.length === 1) return
    this.#batches += 1
    const usualNs = this.#usualNs.get(shape)
    if (this.#trying !== null) return this.#tried(this.#trying, usualNs === undefined ? null : ns / usualNs)
    if (usualNs === undefined && this.#usualNs.size >= SHAPES_MAX) this.#usualNs.clear()
    this.#usualNs.set(shape, usualNs === undefined ? ns : usualNs * (ns > usualNs ? 1 + USUAL_STEP : 1 - USUAL_STEP))
    if (usualNs === undefined) return
    this.#recent = [...this.#recent, ns / usualNs].slice(-RECENT_BATCHES)
    if (this.#recent.length < TRIAL_BATCHES) return
    if (this.#batches >= Math.max(WAIT_BATCHES, this.#wait * this.#waitPart())) this.#try()
  }

  #waitPart(): number {
    if (this.#recent.length < RECENT_BATCHES) return 1
    const pace = median(this.#recent)
    if (pace > CHANGED && this.#at < this.#numbers.length - 1) return WAIT_PART_SLOWER
    return pace * CHANGED < 1 ? WAIT_PART_FASTER : 1
  }

  #try(): void {
    this.#next = (this.#next + 1) % this.#numbers.length
    if (this.#next === this.#at) this.#next = (this.#next + 1) % this.#numbers.length
    this.#trying = this.#next
    this.#trial = []
    this.#batches = 0
  }

  /** `pace` null: nothing is known of such a batch. One that takes much longer says enough. */
  #tried(trying: number, pace: number | null): void {
    const before = median(this.#recent)
    if (pace !== null) this.#trial.push(pace)
    const isLost = (pace ?? 0) > CHANGED * before || this.#batches >= TRIAL_BATCHES_MAX
    if (this.#trial.length < TRIAL_BATCHES && !isLost) return
    const isFaster = !isLost && median(this.#trial) < FASTER * before
    const lost = Math.ceil(WAIT_PER_LOST * Math.max(0, ...this.#trial) / before)
    this.#wait = isFaster ? WAIT_BATCHES : Math.min(WAIT_BATCHES_MAX, Math.max(this.#wait * 2, lost))
    if (isFaster) {
      this.#at = trying
      this.#usualNs.clear()
    }
    this.#recent = []
    this.#trying = null
    this.#batches = 0
  }
}

const median = (values: readonly number[]): number => [...values].sort((a, b) => a - b)[values.length >> 1] ?? 0
