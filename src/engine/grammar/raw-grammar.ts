/**
 * Owns the bounds of a grammar that a client wrote itself: what the library would take too long over, or too deep a
 * stack, is refused before it sees it. What is no GBNF the library says itself, when it reads it.
 */
import { RawGrammarError } from './schema-error.ts'

const RULES_MAX = 1_000
const CHARS_MAX = 64 * 1024
/** The library reads groups by recursion. */
const GROUPS_DEPTH_MAX = 32

/** The same text. Throws RawGrammarError. */
export function checkedGbnf(gbnf: string): string {
  if (gbnf.length > CHARS_MAX) throw new RawGrammarError(`it is longer than ${CHARS_MAX} characters`)
  if (gbnf.includes('\0')) throw new RawGrammarError('it holds a NUL')
  const bare = gbnf.replace(QUOTED, '""')
  const rules = bare.split('::=').length - 1
  if (rules > RULES_MAX) throw new RawGrammarError(`it has ${rules} rules, and ${RULES_MAX} are read`)
  if (!/^\s*root\s*::=/m.test(bare)) throw new RawGrammarError('it has no rule "root"')
  let depth = 0
  for (const char of bare) {
    if (char === '(') depth++
    if (char === ')') depth--
    if (depth > GROUPS_DEPTH_MAX) throw new RawGrammarError(`its groups are nested deeper than ${GROUPS_DEPTH_MAX}`)
  }
  return gbnf
}

/** Literals, classes and comments: whatever is in them is no grammar. */
const QUOTED = /"(?:\\[^]|[^"\\])*"|\[(?:\\[^]|[^\]\\])*\]|#[^\n]*/g
