/**
 * Owns a model of an engine in virtual time: batches of mixed prefill and decode, whose iterations take
 * `step + row x decoding calls + prefill x tokens read`. Like iterations are done in one go, so that the cost of a run is
 * one event for each change of the batch, not one for each token. It obeys commands between iterations, as engines do,
 * and has one link to host memory, over which copies go one after another beside the batches.
 * Leaves memory to the core, which keeps its ledger, and tokens to nobody: there are none.
 */
import type { CallId } from '../src/core/ids.ts'
import type { AttemptReport } from '../src/core/input.ts'
import { emptyLedger, type EngineSpeeds, type Ledger } from '../src/core/state.ts'
import type { Tokens, Us } from '../src/core/units.ts'

export interface VirtualSpeeds {
  readonly stepUs: Us
  readonly rowUs: Us
  readonly prefillUsPerToken: Us
  readonly copyNsPerToken: number
  /** Tokens read in one iteration, at most. */
  readonly chunkTokens: Tokens
  readonly rows: number
}

export const speedsOf = (speeds: VirtualSpeeds): EngineSpeeds => ({
  prefillNsPerToken: speeds.prefillUsPerToken * 1_000, decodeBaseNs: speeds.stepUs * 1_000, decodeRowNs: speeds.rowUs * 1_000,
  copyOutNsPerToken: speeds.copyNsPerToken, copyInNsPerToken: speeds.copyNsPerToken,
})

/** One attempt: what it reads first, again or for the first time, and what it then makes. */
export interface Attempt {
  readonly call: CallId
  readonly attempt: number
  readonly run: number
  readonly epoch: number
  /** To be read; of these the first `recomputeTokens` for a second time. */
  readonly readTokens: Tokens
  readonly recomputeTokens: Tokens
  /** In the State beyond the call's base when it starts, and of that what its prompt is when all is read. */
  readonly tailTokens: Tokens
  readonly promptTailTokens: Tokens
  /** Made by earlier attempts, and in all. */
  readonly madeTokens: Tokens
  readonly outputTokens: Tokens
}

class Member {
  readonly of: Attempt
  readonly ledger: Ledger = emptyLedger()
  readLeft: Tokens
  made: Tokens
  pausing = false

  constructor(of: Attempt) {
    this.of = of
    this.readLeft = of.readTokens
    this.made = of.madeTokens
  }

  get done(): boolean {
    return this.readLeft === 0 && this.made >= this.of.outputTokens
  }

  get rereading(): boolean {
    return this.of.readTokens - this.readLeft < this.of.recomputeTokens
  }

  serve(residentUs: Us, workUs: Us): void {
    const to = this.rereading ? this.ledger.recomputed : this.ledger.useful
    to.residentUs += residentUs
    to.workUs += workUs
  }

  report(): AttemptReport {
    const read = this.of.readTokens - this.readLeft
    const { recomputeTokens, tailTokens, promptTailTokens } = this.of
    const prompt = this.readLeft === 0 ? promptTailTokens : Math.min(promptTailTokens, tailTokens + read)
    return {
      service: copyOf(this.ledger), tailPrefilled: prompt, tailDecoded: Math.max(0, this.made - 1),
      outputTokens: this.made, recomputedTokens: Math.min(read, recomputeTokens),
    }
  }
}

const copyOf = ({ useful, retried, recomputed }: Ledger): Ledger => ({ useful: { ...useful }, retried: { ...retried }, recomputed: { ...recomputed } })

/** Iterations that are all alike: who reads how much in each, who makes a token in each, and how many there can be. */
interface Stretch {
  readonly iterationUs: Us
  readonly iterations: number
  readonly reading: readonly { readonly member: Member; readonly tokens: Tokens }[]
  readonly making: readonly Member[]
}

export type Said =
  | { readonly kind: 'finished' | 'paused'; readonly of: Attempt; readonly report: AttemptReport }
  | { readonly kind: 'progress'; readonly calls: readonly { readonly of: Attempt; readonly report: AttemptReport }[] }

export class VirtualEngine {
  readonly #speeds: VirtualSpeeds
  readonly #reportEveryUs: Us
  #members: Member[] = []
  #joining: Member[] = []
  #ranks = new Map<CallId, number>()
  /** When the iteration under way began. */
  #beganUs: Us = 0
  #reportUs: Us = 0
  #linkFreeUs: Us = 0
  #stretch: Stretch | null = null
  busyUs: Us = 0

  constructor(speeds: VirtualSpeeds, reportEveryUs: Us) {
    this.#speeds = speeds
    this.#reportEveryUs = reportEveryUs
  }

  // ---------------------------------------------------------------- commands

  start(attempt: Attempt, nowUs: Us): void {
    this.#advance(nowUs)
    this.#joining.push(new Member(attempt))
    if (this.#members.length === 0) this.#begin(nowUs)
  }

  pause(call: CallId, nowUs: Us): void {
    this.#advance(nowUs)
    for (const member of this.#all()) if (member.of.call === call) member.pausing = true
  }

  order(ranks: readonly { readonly call: CallId; readonly rank: number }[]): void {
    this.#ranks = new Map(ranks.map(({ call, rank }) => [call, rank]))
  }

  /** When a copy of so many tokens that is asked for now will be done. */
  copy(tokens: Tokens, nowUs: Us): Us {
    this.#linkFreeUs = Math.max(this.#linkFreeUs, nowUs) + Math.ceil((tokens * this.#speeds.copyNsPerToken) / 1_000)
    return this.#linkFreeUs
  }

  // ---------------------------------------------------------------- time

  /** When it next has something to say, or null where nothing runs. */
  nextUs(): Us | null {
    const stretch = this.#plan()
    if (stretch === null) return null
    const changes = this.#joining.length > 0 || this.#members.some(({ pausing }) => pausing)
    const untilReport = Math.max(1, Math.ceil((this.#reportUs - this.#beganUs) / stretch.iterationUs))
    return this.#beganUs + stretch.iterationUs * (changes ? 1 : Math.min(stretch.iterations, untilReport))
  }

  /** What it has to say at `nowUs`, which is what `nextUs` gave: ends first, then progress. */
  speak(nowUs: Us): Said[] {
    this.#advance(nowUs)
    const said: Said[] = []
    const left: Member[] = []
    for (const member of this.#all()) {
      if (member.done) said.push({ kind: 'finished', of: member.of, report: member.report() })
      else if (member.pausing) said.push({ kind: 'paused', of: member.of, report: member.report() })
      else left.push(member)
    }
    this.#members = left
    this.#joining = []
    this.#begin(nowUs)
    if (nowUs >= this.#reportUs && left.length > 0) {
      said.push({ kind: 'progress', calls: left.map((member) => ({ of: member.of, report: member.report() })) })
      this.#reportUs = nowUs + this.#reportEveryUs
    }
    return said
  }

  #all(): readonly Member[] {
    return [...this.#members, ...this.#joining]
  }

  /** A batch begins: with whoever waited to join it. */
  #begin(nowUs: Us): void {
    this.#members.push(...this.#joining)
    this.#joining = []
    this.#beganUs = nowUs
    this.#stretch = null
  }

  #advance(nowUs: Us): void {
    for (let stretch = this.#plan(); stretch !== null; stretch = this.#plan()) {
      const count = Math.min(stretch.iterations, Math.floor((nowUs - this.#beganUs) / stretch.iterationUs))
      if (count === 0) return
      this.#run(stretch, count)
      if (this.#members.some(({ done }) => done)) return
    }
  }

  #run({ iterationUs, iterations, reading, making }: Stretch, count: number): void {
    const { stepUs, rowUs, prefillUsPerToken } = this.#speeds
    const shareUs = Math.floor(stepUs / (reading.length + making.length))
    for (const { member, tokens } of reading) {
      member.serve(iterationUs * count, (shareUs + prefillUsPerToken * tokens) * count)
      member.readLeft -= tokens * count
      // The iteration that reads the last token of a prompt makes the first of the answer.
      if (member.readLeft === 0) member.made += 1
    }
    for (const member of making) {
      member.serve(iterationUs * count, (shareUs + rowUs) * count)
      member.made += count
    }
    this.busyUs += iterationUs * count
    this.#beganUs += iterationUs * count
    this.#stretch = count < iterations && this.#stretch !== null ? { ...this.#stretch, iterations: iterations - count } : null
  }

  #plan(): Stretch | null {
    if (this.#stretch !== null || this.#members.length === 0) return this.#stretch
    const { stepUs, rowUs, prefillUsPerToken, chunkTokens } = this.#speeds
    const making = this.#members.filter(({ readLeft }) => readLeft === 0)
    const readers = this.#members.filter(({ readLeft }) => readLeft > 0).sort((a, b) => this.#rankOf(a) - this.#rankOf(b))
    const reading: { member: Member; tokens: Tokens }[] = []
    let left = chunkTokens
    for (const member of readers) {
      // A stretch reads either old tokens or new ones of a call, since they are charged apart.
      const inPart = member.rereading ? member.of.recomputeTokens - (member.of.readTokens - member.readLeft) : member.readLeft
      const tokens = Math.min(left, inPart)
      if (tokens === 0) break
      reading.push({ member, tokens })
      left -= tokens
    }
    const readTokens = chunkTokens - left
    let iterations = Math.min(...making.map(({ of, made }) => of.outputTokens - made), Number.MAX_SAFE_INTEGER)
    for (const { member, tokens } of reading) {
      const inPart = member.rereading ? member.of.recomputeTokens - (member.of.readTokens - member.readLeft) : member.readLeft
      iterations = Math.min(iterations, Math.floor(inPart / tokens))
    }
    this.#stretch = { iterationUs: stepUs + rowUs * making.length + prefillUsPerToken * readTokens, iterations, reading, making }
    return this.#stretch
  }

  #rankOf({ of }: Member): number {
    return this.#ranks.get(of.call) ?? Number.MAX_SAFE_INTEGER
  }
}
