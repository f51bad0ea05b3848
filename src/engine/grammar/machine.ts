/**
 * Owns running a grammar one character at a time: a state is every way of going on that is open, and what a character
 * makes of a state is worked out once and kept. Leaves GBNF to `gbnf.ts` and tokens to `token-grammar.ts`.
 *
 * A way is a stack of items still to come, linked from its top. Stacks that are equal are one object, so equal states
 * are found by the numbers of their stacks.
 *
 * A1 a grammar that opens too many ways at once is given up (GrammarError), never worked on without end: WAYS_MAX ways
 *    in a state, STEPS_MAX steps for one token. So one token takes bounded time, whatever the grammar says.
 * A2 what is kept is bounded: past NODES_MAX stacks or NEXT_MAX transitions all is forgotten and worked out anew. A
 *    place in a text that has more than OPEN_MAX of its own is given up too: it is nested too deeply.
 */
import type { Gbnf } from './gbnf.ts'
import { itemsOf, reachable } from './rule-graph.ts'
import type { CharRanges, Item, Rule } from './rule-graph.ts'
import { GrammarError } from './schema-error.ts'

/** An enumeration of as many values opens as many. */
const WAYS_MAX = 2_048
/** A way followed by one character is a step, a stack made is several: it takes memory too. */
const STEPS_MAX = 400_000
const NODE_STEPS = 4
const NODES_MAX = 50_000
const OPEN_MAX = 20_000
const NEXT_MAX = 400_000
/** What the first look at a grammar may cost (`check`). */
const CHECK_STEPS = 200_000
const CHECK_STATES = 400
const COUNT_SPAN = 2 ** 21

/** A stack by its top; null: the empty one, where the text may end. */
class Node {
  readonly id: number
  readonly item: Item
  /** How often an item that repeats has begun. */
  readonly count: number
  readonly parent: Node | null
  children: Map<number, Node> | null = null
  /** Every stack with a character on top that this one leads to. */
  closure: readonly (Node | null)[] | null = null

  constructor(id: number, item: Item, count: number, parent: Node | null) {
    this.id = id
    this.item = item
    this.count = count
    this.parent = parent
  }
}

export interface State {
  /** Every way that goes on by a character. */
  readonly ways: readonly Node[]
  /** The text may end here. */
  readonly ends: boolean
  /** By class of characters; null: not allowed. */
  readonly next: Map<number, State | null>
  /** Of the machine when it was made. */
  readonly age: number
}

export class Machine {
  readonly #root: Rule
  /** First code point of each class: characters of one class are alike to every item. */
  readonly #classes: Uint32Array
  readonly #ascii: Uint16Array
  #nodes = 0
  #kept = 0
  #transitions = 0
  #age = 0
  #roots = new Map<number, Node>()
  #states = new Map<string, State>()
  #stepsLeft = STEPS_MAX

  constructor(gbnf: Gbnf) {
    this.#root = gbnf.root
    this.#classes = classesOf(gbnf.root)
    this.#ascii = Uint16Array.from({ length: 128 }, (_, point) => this.#search(point))
  }

  /** Before any character. Throws GrammarError, as all that works out states does. */
  start(): State {
    return this.#state(this.#close(this.#root.heads.map((head) => head === null ? null : this.#child(null, head, 0))))
  }

  /** Gives a token its share of steps. */
  begin(): void {
    this.#stepsLeft = STEPS_MAX
  }

  get age(): number {
    return this.#age
  }

  get classes(): number {
    return this.#classes.length
  }

  classOf(point: number): number {
    return point < 128 ? this.#ascii[point] ?? 0 : this.#search(point)
  }

  /** Null: no character of the class is allowed here. */
  next(state: State, charClass: number): State | null {
    const known = state.next.get(charClass)
    if (known !== undefined) return known
    const point = this.#classes[charClass] ?? 0
    const begun: (Node | null)[] = []
    for (const node of state.ways) {
      this.#step(1)
      if (node.item.chars !== null && holds(node.item.chars, point)) begun.push(this.#after(node))
    }
    const next = begun.length === 0 ? null : this.#state(this.#close(begun))
    state.next.set(charClass, next)
    this.#transitions++
    return next
  }

  /** A state of before all was forgotten, among those of now. */
  adopt(state: State): State {
    if (state.age === this.#age) return state
    const made = new Map<Node, Node>()
    const ways: (Node | null)[] = state.ways.map((node) => this.#rebuilt(node, made))
    if (made.size > OPEN_MAX) throw new GrammarError(`its text is nested too deeply: more than ${OPEN_MAX} stacks are open`)
    return this.#state(new Set(state.ends ? [...ways, null] : ways))
  }

  /** Forgets all that was worked out where it has become too much. */
  tidy(): void {
    if (this.#kept <= NODES_MAX && this.#transitions <= NEXT_MAX) return
    this.#age++
    this.#kept = 0
    this.#transitions = 0
    this.#roots = new Map()
    this.#states = new Map()
  }

  /** Throws GrammarError where the first steps show that it opens too many ways, or that no text fits. */
  check(): void {
    this.begin()
    const start = this.start()
    this.#stepsLeft = CHECK_STEPS
    const seen = new Set([start])
    const open = [start]
    let begins = start.ends
    try {
      while (open.length > 0 && seen.size < CHECK_STATES) {
        // The one with the most ways is the one most likely to open more.
        const at = open.reduce((best, { ways }, i) => ways.length > (open[best]?.ways.length ?? 0) ? i : best, open.length - 1)
        const [state] = open.splice(at, 1)
        for (let charClass = 0; state !== undefined && charClass < this.#classes.length; charClass++) {
          const next = this.next(state, charClass)
          if (next === null || seen.has(next)) continue
          begins = true
          seen.add(next)
          open.push(next)
        }
      }
    } catch (error) {
      // To look further is not worth more here: a token has more steps than this.
      if (!(error instanceof OutOfSteps)) throw error
      return
    }
    if (!begins) throw new GrammarError('no text fits it')
  }

  // -------------------------------------------------------------- stacks

  #child(parent: Node | null, item: Item, count: number): Node {
    const children = parent === null ? this.#roots : parent.children ??= new Map()
    const key = item.id * COUNT_SPAN + count
    const known = children.get(key)
    if (known !== undefined) return known
    const made = new Node(this.#nodes++, item, count, parent)
    this.#kept++
    children.set(key, made)
    return made
  }

  /** What is left of a stack once its top is done. */
  #after({ item, parent }: Node): Node | null {
    return item.next === null ? parent : this.#child(parent, item.next, 0)
  }

  #close(begun: readonly (Node | null)[]): Set<Node | null> {
    const closed = new Set<Node | null>()
    for (const node of begun) {
      if (node === null) closed.add(null)
      else for (const way of node.closure ??= this.#closure(node)) closed.add(way)
      this.#step(node?.closure?.length ?? 1)
      if (closed.size > WAYS_MAX) throw new GrammarError(`it opens more than ${WAYS_MAX} ways at once`)
    }
    return closed
  }

  #closure(start: Node): (Node | null)[] {
    const found: (Node | null)[] = []
    const seen = new Set<Node | null>([start])
    for (const node of seen) {
      this.#step(NODE_STEPS)
      if (node === null || node.item.rule === null) found.push(node)
      else this.#open(node, node.item.rule, seen)
      if (found.length > WAYS_MAX) throw new GrammarError(`it opens more than ${WAYS_MAX} ways at once`)
    }
    return found
  }

  /** What a rule on top of a stack leads to. */
  #open(node: Node, { heads }: Rule, found: Set<Node | null>): void {
    const { item, count, parent } = node
    const { least, most } = item
    const after = this.#after(node)
    let below = after
    if (item.repeats) {
      if (count >= least) found.add(after)
      if (most !== null && count >= most) return
      const begun = most === null ? Math.min(count + 1, least) : count + 1
      below = begun === most ? after : this.#child(parent, item, begun)
    }
    for (const head of heads) found.add(head === null ? below : this.#child(below, head, 0))
  }

  #state(closed: ReadonlySet<Node | null>): State {
    const ways = [...closed].filter((node) => node !== null).sort((a, b) => a.id - b.id)
    const ends = closed.has(null)
    const key = `${ends ? '.' : ''}${ways.map(({ id }) => id).join()}`
    const known = this.#states.get(key)
    if (known !== undefined) return known
    const made: State = { ways, ends, next: new Map(), age: this.#age }
    this.#states.set(key, made)
    return made
  }

  /** `made`: what stands for a node of before. */
  #rebuilt(node: Node, made: Map<Node, Node>): Node {
    const path: Node[] = []
    let at: Node | null = node
    for (; at !== null && !made.has(at); at = at.parent) path.push(at)
    let now = at === null ? null : made.get(at) ?? null
    for (const old of path.reverse()) {
      now = this.#child(now, old.item, old.count)
      made.set(old, now)
    }
    return now ?? node
  }

  #step(count: number): void {
    this.#stepsLeft -= count
    if (this.#stepsLeft < 0) throw new OutOfSteps(`one token of it takes more than ${STEPS_MAX} steps`)
  }

  #search(point: number): number {
    let low = 0
    let high = this.#classes.length - 1
    while (low < high) {
      const middle = (low + high + 1) >>> 1
      if ((this.#classes[middle] ?? 0) <= point) low = middle
      else high = middle - 1
    }
    return low
  }
}

class OutOfSteps extends GrammarError {}

function holds(ranges: CharRanges, point: number): boolean {
  let low = 0
  let high = ranges.length / 2 - 1
  while (low <= high) {
    const middle = (low + high) >>> 1
    if (point < (ranges[middle * 2] ?? 0)) high = middle - 1
    else if (point > (ranges[middle * 2 + 1] ?? 0)) low = middle + 1
    else return true
  }
  return false
}

function classesOf(root: Rule): Uint32Array {
  const sets = new Set<CharRanges>()
  for (const rule of reachable(root)) for (const { chars } of itemsOf(rule)) if (chars !== null) sets.add(chars)
  const bounds = new Set([0, 1])
  for (const set of sets) {
    for (let i = 0; i < set.length; i += 2) bounds.add(set[i] ?? 0).add((set[i + 1] ?? 0) + 1)
  }
  return Uint32Array.from(bounds).sort()
}
