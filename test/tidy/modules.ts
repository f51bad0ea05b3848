/**
 * Owns what a file takes from others and what it offers: imports and exports, read from its tokens. Leaves what is
 * allowed to `rules.ts`.
 */
import { posix } from 'node:path'
import { tokensOf, type Token } from './tokens.ts'

export interface Import {
  readonly specifier: string
  readonly line: number
  readonly typeOnly: boolean
  /** Names taken; null where all may be (a namespace, a dynamic import, `export *`). */
  readonly names: readonly string[] | null
  readonly star: boolean
}

export interface Export { readonly name: string; readonly line: number }

export interface SourceFile {
  /** From the package root, with slashes. */
  readonly path: string
  readonly text: string
  readonly tokens: readonly Token[]
  /** Tokens without comments. */
  readonly code: readonly Token[]
  readonly imports: readonly Import[]
  readonly exports: readonly Export[]
}

export function readSource(path: string, text: string): SourceFile {
  const tokens = tokensOf(text)
  const code = tokens.filter((token) => token.kind !== 'comment')
  return { path, text, tokens, code, imports: importsOf(code), exports: exportsOf(code) }
}

/** Path of the imported file, or null where a package is meant. */
export const resolveImport = (file: SourceFile, specifier: string): string | null =>
  specifier.startsWith('.') ? posix.join(posix.dirname(file.path), specifier) : null

const unquoted = (token: Token): string => token.text.slice(1, -1)

function importsOf(code: readonly Token[]): Import[] {
  const found: Import[] = []
  code.forEach((token, place) => {
    const before = code[place - 1]?.text
    if (token.kind !== 'word' || before === '.' || before === '?.') return
    if (token.text === 'import' || token.text === 'export') {
      const clause = clauseAt(code, place)
      if (clause !== null) found.push(clause)
    }
    if (token.text === 'import' || token.text === 'require') {
      const specifier = code[place + 2]
      if (code[place + 1]?.text !== '(' || specifier?.kind !== 'string') return
      found.push({ specifier: unquoted(specifier), line: token.line, typeOnly: before === 'typeof', names: null, star: false })
    }
  })
  return found
}

/** `import a, { b } from 'x'`, `import 'x'`, `export { b } from 'x'`, `export * from 'x'`. */
function clauseAt(code: readonly Token[], place: number): Import | null {
  const keyword = code[place]
  if (keyword === undefined) return null
  let at = place + 1
  const typeOnly = code[at]?.text === 'type' && (code[at + 1]?.text === '{' || code[at + 1]?.text === '*' || code[at + 2]?.text === 'from')
  if (typeOnly) at++
  const clause: Token[] = []
  while (at < code.length && clauseToken(code[at])) clause.push(code[at++]!)
  const from = clause.at(-1)
  const specifier = code[at]
  if (specifier?.kind !== 'string') return null
  if (clause.length > 0 && from?.text !== 'from') return null
  if (clause.length === 0 && keyword.text === 'export') return null
  const named = namesIn(clause)
  const star = clause.some((token) => token.text === '*')
  return {
    specifier: unquoted(specifier), line: keyword.line, typeOnly: typeOnly || named.allTypes,
    names: star ? null : named.names, star: star && keyword.text === 'export',
  }
}

const clauseToken = (token: Token | undefined): boolean =>
  token !== undefined && (token.kind === 'word' || (token.kind === 'punct' && '{},*'.includes(token.text)))

/** The imported names of a clause; a default import is the name `default`. */
function namesIn(clause: readonly Token[]): { names: string[]; allTypes: boolean } {
  const open = clause.findIndex((token) => token.text === '{')
  const names = open !== 0 && clause[0]?.kind === 'word' && clause[0].text !== 'from' ? ['default'] : []
  let allTypes = open === 0
  for (const part of partsIn(open < 0 ? [] : clause.slice(open + 1))) {
    const isType = part[0] === 'type' && part.length > 1 && part[1] !== 'as'
    if (!isType) allTypes = false
    names.push(part[isType ? 1 : 0] ?? '')
  }
  return { names, allTypes: allTypes && names.length > 0 }
}

/** Words between commas, up to the closing brace. */
function partsIn(list: readonly Token[]): string[][] {
  const parts: string[][] = [[]]
  for (const token of list) {
    if (token.text === '}') break
    if (token.text === ',') parts.push([])
    else parts.at(-1)?.push(token.text)
  }
  return parts.filter((part) => part.length > 0)
}

const MODIFIERS = new Set(['declare', 'abstract', 'async', 'default'])
const DECLARES = new Set(['function', 'class', 'const', 'let', 'var', 'type', 'interface'])

function exportsOf(code: readonly Token[]): Export[] {
  const found: Export[] = []
  code.forEach((token, place) => {
    if (token.kind !== 'word' || token.text !== 'export' || code[place - 1]?.text === '.') return
    let at = place + 1
    if (code[at]?.text === 'default') found.push({ name: 'default', line: token.line })
    if (code[at]?.text === 'type' && code[at + 1]?.text === '{') at++
    if (code[at]?.text === '{') {
      for (const part of partsIn(code.slice(at + 1))) found.push({ name: part.at(-1) ?? '', line: token.line })
      return
    }
    if (code[at]?.text === 'default') return
    while (MODIFIERS.has(code[at]?.text ?? '')) at++
    if (!DECLARES.has(code[at]?.text ?? '')) return
    at += code[at + 1]?.text === '*' ? 2 : 1
    const name = code[at]
    if (name?.kind === 'word') found.push({ name: name.text, line: token.line })
  })
  return found
}
