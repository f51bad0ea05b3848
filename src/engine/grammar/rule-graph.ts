/** Owns rules as a machine runs them, and what can be said of them from who names whom: who is reached, who begins with itself. */

/** A rule, or what a group or a repetition holds. */
export interface Rule {
  /** Of the rule in the text that it is part of. */
  readonly name: string
  /** The first item of each alternative; null: an empty one. */
  heads: readonly (Item | null)[]
}

/** One part of an alternative; what comes after it is `next`. */
export class Item {
  readonly id: number
  /** One character of these ranges, sorted; null where the item is no character. */
  readonly chars: CharRanges | null
  readonly rule: Rule | null
  readonly least: number
  /** Null: without end. */
  readonly most: number | null
  next: Item | null = null

  constructor(id: number, chars: CharRanges | null, rule: Rule | null, least = 1, most: number | null = 1) {
    this.id = id
    this.chars = chars
    this.rule = rule
    this.least = least
    this.most = most
  }

  get repeats(): boolean {
    return this.least !== 1 || this.most !== 1
  }
}

/** Code points from `ranges[2i]` to `ranges[2i + 1]`, sorted and apart. */
export type CharRanges = readonly number[]

// ---------------------------------------------------------------- who names whom

export function* itemsOf(rule: Rule): Generator<Item> {
  for (const head of rule.heads) for (let item = head; item !== null; item = item.next) yield item
}

/** The rule and all that it is made of, in the order of their first mention. */
export function reachable(root: Rule): Rule[] {
  const found = new Set([root])
  for (const rule of found) for (const { rule: inner } of itemsOf(rule)) if (inner !== null) found.add(inner)
  return [...found]
}

/** A rule that may begin with itself; null where there is none. */
export function leftRecursive(rules: readonly Rule[]): Rule | null {
  const empty = emptyRules(rules)
  const begins = (rule: Rule): Rule[] => rule.heads.flatMap((head) => {
    const first: Rule[] = []
    for (let item = head; item !== null && item.rule !== null; item = item.next) {
      first.push(item.rule)
      if (item.least > 0 && !empty.has(item.rule)) break
    }
    return first
  })
  const done = new Set<Rule>()
  for (const start of rules) {
    const path = new Set<Rule>()
    const walk = [{ rule: start, next: begins(start).values() }]
    if (!done.has(start)) path.add(start)
    else walk.pop()
    for (let top = walk.at(-1); top !== undefined; top = walk.at(-1)) {
      const { value: rule } = top.next.next()
      if (rule === undefined) {
        path.delete(top.rule)
        done.add(top.rule)
        walk.pop()
      } else if (path.has(rule)) return rule
      else if (!done.has(rule)) {
        path.add(rule)
        walk.push({ rule, next: begins(rule).values() })
      }
    }
  }
  return null
}

/** Rules that the empty text fits. Takes as long as they have items. */
function emptyRules(rules: readonly Rule[]): ReadonlySet<Rule> {
  const empty = new Set<Rule>()
  /** Alternatives of which some items are not known to be empty, by the rules of those. */
  const waiting = new Map<Rule, Alternative[]>()
  for (const rule of rules) {
    for (const head of rule.heads) {
      const needed = neededFor(head)
      if (needed === null) continue
      const alternative = { rule, left: needed.size }
      if (needed.size === 0) empty.add(rule)
      for (const each of needed) {
        const others = waiting.get(each)
        if (others === undefined) waiting.set(each, [alternative])
        else others.push(alternative)
      }
    }
  }
  for (const found of empty) {
    for (const alternative of waiting.get(found) ?? []) if (--alternative.left === 0) empty.add(alternative.rule)
  }
  return empty
}

interface Alternative {
  readonly rule: Rule
  left: number
}

/** The rules that have to be empty for an alternative to be; null: it is not, whatever they are. */
function neededFor(head: Item | null): ReadonlySet<Rule> | null {
  const needed = new Set<Rule>()
  for (let item = head; item !== null; item = item.next) {
    if (item.rule === null) return null
    if (item.least > 0) needed.add(item.rule)
  }
  return needed
}
