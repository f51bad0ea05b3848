/**
 * Owns running a grammar one character at a time: a state is every way of going on that is open, and what a character
 * makes of a state is worked out once and kept. Leaves GBNF to `gbnf.ts` and tokens to `token-grammar.ts`.
 *
 * A way is a stack of items still to come, linked from its top. Stacks that are equal are one object, so equal states
 * are found by the numbers of their stacks.
 *
 * A1 a grammar that opens too many ways at once is given up (GrammarError), never worked on without end: WAYS_MAX ways
 *    in a state, STEPS_MAX steps for one token. So one token takes bounded time, whatever the grammar says.
 * A2 what is kept is bounded: past KEPT_BYTES_MAX all is forgotten and worked out anew. A place in a text that has more
 *    than OPEN_MAX stacks of its own is given up too: it is nested too deeply.
 * A3 what is given up, and why, is a function of the grammar and the text: what is known costs a token the steps that it
 *    took to work out, once a token, and no limit is looked at in an order that depends on what came before.
 */
import type { Gbnf } from './gbnf.ts'
import { itemsOf, reachable } from './rule-graph.ts'
import type { CharRanges, Item, Rule } from './rule-graph.ts'
import { GrammarError } from './schema-error.ts'

/** An enumeration of as many values opens as many. */
const WAYS_MAX = 2_048
/**
 * A way followed by one character is a step, a stack made is several: it takes memory too. A mask over 49,152 tokens takes
 * 1,600 at most under random schemas, 85,000 under 400 optional members, 300,000 to 400,000 under 2,000 values that begin
 * with the same long words. All of them take 0.05 to 0.2 s.
 */
const STEPS_MAX = 500_000
const NODE_STEPS = 4
const OPEN_MAX = 20_000
/** Of one grammar; what is made for the token at hand comes on top. Each of these holds less by measurement. */
export const KEPT_BYTES_MAX = 32 * 1024 * 1024
const NODE_BYTES = 320
const STATE_BYTES = 400
const NEXT_BYTES = 100
const CLOSURE_BYTES = 80
/** Each way of a state or a closure, with its part of the state's key. */
const WAY_BYTES = 20
/** What the first look at a grammar may cost (`check`). */
const CHECK_STEPS = STEPS_MAX
const CHECK_STATES = 400
const COUNT_SPAN = 2 ** 21

/** A stack by its top; null: the empty one, where the text may end. */
class Node {
  readonly id: number
  readonly item: Item
  /** How often an item that repeats has begun. */
  readonly count: number
  readonly parent: Node | null
  readonly depth: number
  children: Map<number, Node> | null = null
  closure: Closure | null = null

  constructor(id: number, item: Item, count: number, parent: Node | null) {
    this.id = id
    this.item = item
    this.count = count
    this.parent = parent
    this.depth = parent === null ? 1 : parent.depth + 1
  }
}

/** Every stack with a character on top that a stack leads to. */
interface Closure {
  readonly ways: readonly (Node | null)[]
  /** What it takes to work out. */
  readonly steps: number
}

interface Transition {
  /** Null: not allowed. */
  readonly to: State | null
  /** What it takes to work out. */
  readonly steps: number
  /** The token that it was last charged to. */
  token: number
}

export interface State {
  /** Every way that goes on by a character. */
  readonly ways: readonly Node[]
  /** The text may end here. */
  readonly ends: boolean
  /** By class of characters. */
  readonly next: Map<number, Transition>
  /** Of the machine when it was made. */
  readonly age: number
}

export class Machine {
  readonly #root: Rule
  /** First code point of each class: characters of one class are alike to every item. */
  readonly #classes: Uint32Array
  readonly #ascii: Uint16Array
  #nodes = 0
  #keptBytes = 0
  #age = 0
  /** All that are kept. */
  #stacks: Node[] = []
  #roots = new Map<number, Node>()
  #states = new Map<string, State>()
  #token = 0
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

  /** Gives a token its share of steps, and forgets all that was worked out where it has become too much. */
  begin(): void {
    this.#token++
    this.#stepsLeft = STEPS_MAX
    if (this.#keptBytes > KEPT_BYTES_MAX) this.#forget()
  }

  get keptBytes(): number {
    return this.#keptBytes
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
    if (known !== undefined) {
      if (known.token !== this.#token) this.#step(known.steps)
      known.token = this.#token
      return known.to
    }
    const stepsBefore = this.#stepsLeft
    const point = this.#classes[charClass] ?? 0
    const begun: (Node | null)[] = []
    this.#step(state.ways.length)
    for (const node of state.ways) if (node.item.chars !== null && holds(node.item.chars, point)) begun.push(this.#after(node))
    const to = begun.length === 0 ? null : this.#state(this.#close(begun))
    state.next.set(charClass, { to, steps: stepsBefore - this.#stepsLeft, token: this.#token })
    this.#keptBytes += NEXT_BYTES
    return to
  }

  /** The state of a place, among those of now. Throws GrammarError where it is nested too deeply. */
  adopt(state: State): State {
    if (this.#isTooDeep(state)) throw new GrammarError(`its text is nested too deeply: more than ${OPEN_MAX} stacks are open`)
    if (state.age === this.#age) return state
    const made = new Map<Node, Node>()
    const ways: (Node | null)[] = state.ways.map((node) => this.#rebuilt(node, made))
    return this.#state(new Set(state.ends ? [...ways, null] : ways))
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
      // Not even its first character could be read.
      if (seen.size === 1) throw new GrammarError(error.message)
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
    this.#stacks.push(made)
    this.#keptBytes += NODE_BYTES
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
      if (node === null) {
        this.#step(1)
        closed.add(null)
        continue
      }
      if (node.closure !== null) this.#step(node.closure.steps)
      const { ways } = node.closure ??= this.#closure(node)
      for (const way of ways) closed.add(way)
    }
    // Not before: of two limits that are passed, which one comes first must not depend on the order of the ways.
    if (closed.size > WAYS_MAX) throw new GrammarError(`it opens more than ${WAYS_MAX} ways at once`)
    return closed
  }

  #closure(start: Node): Closure {
    const ways: (Node | null)[] = []
    const seen = new Set<Node | null>([start])
    for (const node of seen) {
      this.#step(NODE_STEPS)
      if (node === null || node.item.rule === null) ways.push(node)
      else this.#open(node, node.item.rule, seen)
    }
    this.#step(ways.length)
    this.#keptBytes += CLOSURE_BYTES + WAY_BYTES * ways.length
    return { ways, steps: NODE_STEPS * seen.size + ways.length }
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
    this.#keptBytes += STATE_BYTES + WAY_BYTES * ways.length
    return made
  }

  /** A place may hold a state for long: what that leads to is forgotten with the rest. */
  #forget(): void {
    for (const node of this.#stacks) node.children = node.closure = null
    for (const state of this.#states.values()) state.next.clear()
    this.#age++
    this.#keptBytes = 0
    this.#stacks = []
    this.#roots = new Map()
    this.#states = new Map()
  }

  /** Counts from the deepest on, as far as stacks differ: most share all but their tops. */
  #isTooDeep({ ways }: State): boolean {
    if (ways.reduce((sum, { depth }) => sum + depth, 0) <= OPEN_MAX) return false
    const left = [...ways].sort((a, b) => a.depth - b.depth)
    let level = new Set<Node>()
    let open = 0
    for (let depth = left.at(-1)?.depth ?? 0; depth > 0 && open <= OPEN_MAX; depth--) {
      for (let top = left.at(-1); top?.depth === depth; top = left.at(-1)) {
        level.add(top)
        left.pop()
      }
      if (left.length === 0 && level.size === 1) return open + depth > OPEN_MAX
      open += level.size
      level = new Set([...level].flatMap(({ parent }) => parent ?? []))
    }
    return open > OPEN_MAX
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
