/** Owns what the soak counts, and its report: every finished call beside the same call alone, every fault, every leak. */
import { columns } from '../../src/core/explain/explain-text.ts'
import type { Plot } from './plot.ts'
import type { Quiet } from './quiet.ts'
import type { Said } from './request.ts'

const MEBIBYTE = 1024 * 1024
const TEXT_SHOWN = 120

export class Tally {
  readonly #alone = new Map<string, string>()
  readonly #counts = new Map<string, number>()
  readonly differences: string[] = []
  readonly faults: string[] = []
  readonly quiets: Quiet[] = []

  add(what: string, count = 1): void {
    this.#counts.set(what, (this.#counts.get(what) ?? 0) + count)
  }

  /** What a call says when nothing disturbs it. */
  alone(plot: Plot, part: string, said: Said): void {
    this.#alone.set(keyOf(plot, part), whatOf(said))
  }

  finished(plot: Plot, part: string, said: Said): void {
    this.add('calls finished')
    this.add('tokens compared', said.outputTokens)
    this.add(`resumed: ${said.resume}`)
    const alone = this.#alone.get(keyOf(plot, part))
    if (alone === whatOf(said)) return
    this.add('calls that differ')
    this.differences.push(`plot ${plot.number} ${part} (${plot.shape}, resume ${said.resume}):\n    ${shown(whatOf(said))}\n    alone: ${shown(alone ?? 'never said')}`)
  }

  fault(what: string): void {
    this.add('faults')
    this.faults.push(what)
  }

  get leaks(): readonly string[] {
    return this.quiets.flatMap(({ afterS, leaks }) => leaks.map((leak) => `after ${afterS} s: ${leak}`))
  }

  get isClean(): boolean {
    return this.differences.length + this.faults.length + this.leaks.length === 0
  }

  get figures(): object {
    return { counts: Object.fromEntries(this.#counts), quiets: this.quiets, differences: this.differences, faults: this.faults, leaks: this.leaks }
  }

  report(): string {
    const counts = columns([...this.#counts].sort(([a], [b]) => (a < b ? -1 : 1)).map(([what, count]) => [what, String(count)]), 'lr')
    const usages = columns([
      ['at', 'process', 'descriptors', 'RSS, MiB'],
      ...this.quiets.flatMap(({ afterS, usages: all }) => all.map(({ who, descriptors, rssBytes }) => [`${afterS} s`, who, String(descriptors), (rssBytes / MEBIBYTE).toFixed(0)])),
    ], 'rlrr')
    const listed = (name: string, what: readonly string[]): readonly string[] => ['', `${what.length} ${name}`, ...what.map((one) => `  ${one}`)]
    return [...counts, '', ...usages, ...listed('differences', this.differences), ...listed('faults', this.faults), ...listed('leaks', this.leaks)].join('\n')
  }
}

const keyOf = (plot: Plot, part: string): string => `${plot.number} ${part}`
const whatOf = ({ text, toolCalls, finish }: Said): string => JSON.stringify([text, toolCalls.map(({ function: called }) => [called.name, called.arguments]), finish])
const shown = (text: string): string => (text.length > TEXT_SHOWN ? `${text.slice(0, TEXT_SHOWN)}...` : text)
