/** Owns the text collection that agents search, and how a passage is found in it: BM25 over words. */
import { readData } from './data-files.ts'

interface Passage {
  readonly title: string
  readonly text: string
}

/** BM25's usual constants. */
const K1 = 1.2
const B = 0.75

export class Corpus {
  readonly passages: readonly Passage[]
  readonly #counts: readonly ReadonlyMap<string, number>[]
  readonly #lengths: readonly number[]
  readonly #meanLength: number
  /** In how many passages a word is. */
  readonly #spread = new Map<string, number>()

  constructor(passages: readonly Passage[]) {
    this.passages = passages
    const words = passages.map((passage) => wordsOf(`${passage.title} ${passage.text}`))
    this.#counts = words.map(countWords)
    this.#lengths = words.map((list) => list.length)
    this.#meanLength = this.#lengths.reduce((sum, length) => sum + length, 0) / Math.max(1, words.length)
    for (const counts of this.#counts) {
      for (const word of counts.keys()) this.#spread.set(word, (this.#spread.get(word) ?? 0) + 1)
    }
  }

  static load(): Corpus {
    return new Corpus(readData<readonly Passage[]>('corpus', 'passages.json'))
  }

  /** Best first, then in the collection's order; the whole collection, so a caller takes as much as it has room for. */
  search(query: string): readonly Passage[] {
    const wanted = new Set(wordsOf(query))
    return this.passages
      .map((passage, at) => ({ passage, at, score: this.#score(wanted, at) }))
      .sort((a, b) => b.score - a.score || a.at - b.at)
      .map(({ passage }) => passage)
  }

  #score(wanted: ReadonlySet<string>, at: number): number {
    const counts = this.#counts[at]
    const length = this.#lengths[at] ?? 0
    let score = 0
    for (const word of wanted) {
      const count = counts?.get(word) ?? 0
      if (count === 0) continue
      const spread = this.#spread.get(word) ?? 0
      const rarity = Math.log(1 + (this.passages.length - spread + 0.5) / (spread + 0.5))
      score += rarity * (count * (K1 + 1)) / (count + K1 * (1 - B + B * length / this.#meanLength))
    }
    return score
  }
}

const wordsOf = (text: string): string[] => text.toLowerCase().match(/[a-z0-9]+/g) ?? []

function countWords(words: readonly string[]): Map<string, number> {
  const counts = new Map<string, number>()
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
  return counts
}
