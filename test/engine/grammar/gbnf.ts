/**
 * A small reader of GBNF for tests: whether a text matches, and texts drawn at random. It knows what our grammars use,
 * and reads repetitions and character ranges as libllama does.
 */
import assert from 'node:assert/strict'

type Node =
  | { readonly kind: 'any'; readonly of: readonly Node[] }
  | { readonly kind: 'all'; readonly of: readonly Node[] }
  | { readonly kind: 'range'; readonly ranges: readonly (readonly [number, number])[] }
  | { readonly kind: 'text'; readonly points: readonly number[] }
  | { readonly kind: 'rule'; readonly name: string }
  | { readonly kind: 'repeat'; readonly of: Node; readonly least: number; readonly most: number }

const MANY = Infinity

export class Gbnf {
  readonly #rules = new Map<string, Node>()
  readonly #shortest = new Map<string, number>()

  constructor(text: string) {
    for (const line of text.split('\n').filter((one) => one !== '')) {
      const [, name, body] = /^([a-zA-Z0-9-]+) ::= (.*)$/.exec(line) ?? []
      assert(name !== undefined && body !== undefined, `no rule: ${line}`)
      assert(!this.#rules.has(name), `two rules ${name}`)
      this.#rules.set(name, new Reader(body).read())
    }
    this.#measure()
  }

  matches(text: string): boolean {
    const points = [...text].map((char) => char.codePointAt(0) ?? 0)
    return this.#ends({ kind: 'rule', name: 'root' }, points, 0, new Map()).has(points.length)
  }

  /** A text of the grammar; `pick(n)` gives a number below n. Past `depth` rules it heads for the shortest end. */
  draw(pick: (below: number) => number, depth = 12): string {
    const out: number[] = []
    this.#draw({ kind: 'rule', name: 'root' }, pick, depth, out)
    return String.fromCodePoint(...out)
  }

  #draw(node: Node, pick: (below: number) => number, depth: number, out: number[]): void {
    switch (node.kind) {
      case 'text':
        out.push(...node.points)
        return
      case 'range': {
        const [low, high] = node.ranges[pick(node.ranges.length)] ?? [63, 63]
        out.push(low + pick(high - low + 1))
        return
      }
      case 'all':
        for (const part of node.of) this.#draw(part, pick, depth, out)
        return
      case 'any': {
        const lengths = node.of.map((part) => this.#length(part))
        const least = Math.min(...lengths)
        const open = node.of.filter((_, i) => depth > 0 ? lengths[i] !== MANY : lengths[i] === least)
        const chosen = open[pick(open.length)]
        if (chosen !== undefined) this.#draw(chosen, pick, depth, out)
        return
      }
      case 'rule':
        this.#draw(this.#rule(node.name), pick, depth - 1, out)
        return
      case 'repeat': {
        const more = depth > 0 ? pick(Math.min(node.most - node.least, 3) + 1) : 0
        for (let times = node.least + more; times > 0; times--) this.#draw(node.of, pick, depth, out)
      }
    }
  }

  #rule(name: string): Node {
    const rule = this.#rules.get(name)
    assert(rule !== undefined, `no rule ${name}`)
    return rule
  }

  #ends(node: Node, text: readonly number[], at: number, memo: Map<string, Set<number>>): Set<number> {
    switch (node.kind) {
      case 'text': {
        const found = node.points.every((point, i) => text[at + i] === point)
        return new Set(found ? [at + node.points.length] : [])
      }
      case 'range': {
        const point = text[at]
        const found = point !== undefined && node.ranges.some(([low, high]) => low <= point && point <= high)
        return new Set(found ? [at + 1] : [])
      }
      case 'any': return new Set(node.of.flatMap((part) => [...this.#ends(part, text, at, memo)]))
      case 'all': return node.of.reduce(
        (ends, part) => new Set([...ends].flatMap((end) => [...this.#ends(part, text, end, memo)])), new Set([at]))
      case 'rule': {
        const key = `${node.name}@${at}`
        const known = memo.get(key)
        if (known !== undefined) return known
        const ends = this.#ends(this.#rule(node.name), text, at, memo)
        memo.set(key, ends)
        return ends
      }
      case 'repeat': return this.#repeats(node, text, at, memo)
    }
  }

  #repeats(
    node: Node & { kind: 'repeat' }, text: readonly number[], at: number, memo: Map<string, Set<number>>,
  ): Set<number> {
    const ends = new Set(node.least === 0 ? [at] : [])
    let now = new Set([at])
    const seen = new Set<number>()
    for (let times = 1; times <= node.most && now.size > 0; times++) {
      now = new Set([...now].flatMap((from) => [...this.#ends(node.of, text, from, memo)]))
      if (times < node.least) continue
      now = new Set([...now].filter((end) => !seen.has(end)))
      for (const end of now) {
        seen.add(end)
        ends.add(end)
      }
    }
    return ends
  }

  /** How deep the shallowest text of each rule is. */
  #measure(): void {
    for (let changed = true; changed;) {
      changed = false
      for (const [name, body] of this.#rules) {
        const depth = 1 + this.#length(body)
        if (depth < (this.#shortest.get(name) ?? MANY)) {
          this.#shortest.set(name, depth)
          changed = true
        }
      }
    }
  }

  #length(node: Node): number {
    switch (node.kind) {
      case 'text':
      case 'range': return 0
      case 'any': return Math.min(...node.of.map((part) => this.#length(part)))
      case 'all': return Math.max(0, ...node.of.map((part) => this.#length(part)))
      case 'rule': return this.#shortest.get(node.name) ?? MANY
      case 'repeat': return node.least === 0 ? 0 : this.#length(node.of)
    }
  }
}

class Reader {
  readonly #text: string
  #at = 0

  constructor(text: string) {
    this.#text = text
  }

  read(): Node {
    const node = this.#alternatives()
    assert.equal(this.#at, this.#text.length, `left over: ${this.#text.slice(this.#at)}`)
    return node
  }

  #alternatives(): Node {
    const of = [this.#sequence()]
    while (this.#take('|')) of.push(this.#sequence())
    return of.length === 1 ? of[0] ?? assert.fail() : { kind: 'any', of }
  }

  #sequence(): Node {
    const of: Node[] = []
    for (;;) {
      while (this.#take(' '));
      const item = this.#item()
      if (item === null) break
      of.push(this.#repeated(item))
    }
    assert(of.length > 0, `an empty alternative: ${this.#text}`)
    return of.length === 1 ? of[0] ?? assert.fail() : { kind: 'all', of }
  }

  #item(): Node | null {
    if (this.#take('"')) return this.#literal()
    if (this.#take('[')) return this.#ranges()
    if (this.#take('(')) {
      const node = this.#alternatives()
      assert(this.#take(')'), `no ) in ${this.#text}`)
      return node
    }
    const [name] = /^[a-zA-Z0-9-]+/.exec(this.#text.slice(this.#at)) ?? []
    if (name === undefined) return null
    this.#at += name.length
    return { kind: 'rule', name }
  }

  #literal(): Node {
    const points: number[] = []
    while (!this.#take('"')) points.push(this.#point())
    return { kind: 'text', points }
  }

  #ranges(): Node {
    const ranges: [number, number][] = []
    while (!this.#take(']')) {
      const low = this.#point()
      const isRange = this.#text[this.#at] === '-' && this.#text[this.#at + 1] !== ']'
      if (isRange) this.#at++
      ranges.push([low, isRange ? this.#point() : low])
    }
    return { kind: 'range', ranges }
  }

  #point(): number {
    const char = String.fromCodePoint(this.#text.codePointAt(this.#at) ?? assert.fail(`cut off: ${this.#text}`))
    this.#at += char.length
    if (char !== '\\') return char.codePointAt(0) ?? 0
    const kind = this.#text[this.#at++] ?? ''
    const digits = { x: 2, u: 4, U: 8 }[kind]
    if (digits !== undefined) {
      this.#at += digits
      return Number.parseInt(this.#text.slice(this.#at - digits, this.#at), 16)
    }
    const plain = { t: '\t', r: '\r', n: '\n', '\\': '\\', '"': '"', '[': '[', ']': ']', '-': '-' }[kind]
    return plain?.charCodeAt(0) ?? assert.fail(`an unknown escape \\${kind}`)
  }

  #repeated(of: Node): Node {
    if (this.#take('?')) return { kind: 'repeat', of, least: 0, most: 1 }
    if (this.#take('*')) return { kind: 'repeat', of, least: 0, most: MANY }
    if (this.#take('+')) return { kind: 'repeat', of, least: 1, most: MANY }
    const [all, least, comma, most] = /^\{([0-9]+)(,?)([0-9]*)\}/.exec(this.#text.slice(this.#at)) ?? []
    if (all === undefined) return of
    this.#at += all.length
    const low = Number(least)
    return { kind: 'repeat', of, least: low, most: comma === '' ? low : most === '' ? MANY : Number(most) }
  }

  #take(char: string): boolean {
    if (this.#text[this.#at] !== char) return false
    this.#at++
    return true
  }
}
