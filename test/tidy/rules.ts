/**
 * Owns the rules that look at one file at a time. Rules about imports are in `graph.ts`. Each complaint says what to do.
 */
import { functionsOf } from './functions.ts'
import type { SourceFile } from './modules.ts'
import { bracketsOf, type Token } from './tokens.ts'

export interface Complaint { readonly path: string; readonly line: number; readonly message: string }

export const FILE_LINES_MAX = 500
export const FUNCTION_LINES_MAX = 70

const isTest = (path: string): boolean => path.startsWith('test/')
const isSource = (path: string): boolean => path.startsWith('src/')
const isCore = (path: string): boolean => path.startsWith('src/core/')

type Rule = (file: SourceFile) => Complaint[]

const complain = (file: SourceFile, line: number, message: string): Complaint => ({ path: file.path, line, message })

/** A word used as itself: not `x.word`, not the key `word:`. */
function standsAlone(code: readonly Token[], place: number): boolean {
  const before = code[place - 1]?.text
  const after = code[place + 1]?.text
  if (before === '.' || before === '?.') return false
  const isKey = (before === '{' || before === ',' || before === ';') && (after === ':' || after === '(')
  return !isKey
}

const wordsWhere = (file: SourceFile, wanted: (word: string) => boolean): Token[] =>
  file.code.filter((token, place) => token.kind === 'word' && wanted(token.text) && standsAlone(file.code, place))

// ---------------------------------------------------------------- size and names

export const fileLength: Rule = (file) => {
  const lines = file.text.trimEnd().split('\n').length
  if (lines <= FILE_LINES_MAX) return []
  return [complain(file, lines, `has ${lines} lines, over ${FILE_LINES_MAX}: split it along a noun`)]
}

export const functionLength: Rule = (file) => {
  const spans = functionsOf(file.code).filter((span) => span.lines > FUNCTION_LINES_MAX)
  return spans
    .filter((span) => !isTest(file.path) || !span.groupsTests)
    .map((span) => complain(file, span.line,
      `${span.name} has ${span.lines} lines, over ${FUNCTION_LINES_MAX}: keep the branches here and move the leaves into functions`))
}

export const fileName: Rule = (file) => {
  const name = file.path.split('/').at(-1) ?? ''
  const found: Complaint[] = []
  if (!/^[a-z0-9]+(-[a-z0-9]+)*(\.test)?\.ts$/.test(name)) found.push(complain(file, 1, 'is not a kebab-case noun: rename it'))
  if (/\b(utils?|helpers?|common|manager|misc)\b/.test(name)) {
    found.push(complain(file, 1, `is called ${name}: name the noun it owns, or move each function to who uses it`))
  }
  return found
}

export const headComment: Rule = (file) => {
  const first = file.tokens.find((token) => !token.text.startsWith('#!'))
  if (!isSource(file.path) || (first?.kind === 'comment' && first.text.startsWith('/**'))) return []
  return [complain(file, 1, 'has no head comment: say what it owns, what it leaves to others, which invariants it keeps')]
}

// ---------------------------------------------------------------- types

export const noAny: Rule = (file) => {
  if (isTest(file.path)) return []
  const isValue = (place: number): boolean => file.code[place + 1]?.text === '(' || /^(const|let|function)$/.test(file.code[place - 1]?.text ?? '')
  return file.code
    .filter((token, place) => token.kind === 'word' && token.text === 'any' && standsAlone(file.code, place) && !isValue(place))
    .map((token) => complain(file, token.line, '`any`: write the type, or `unknown` and check it'))
}

export const noIgnore: Rule = (file) => file.tokens
  .filter((token) => token.kind === 'comment')
  .filter(({ text }) => /@ts-(ignore|nocheck)/.test(text) || (!isTest(file.path) && text.includes('@ts-expect-error')))
  .map((token) => complain(file, token.line, 'silences the type checker: change the type instead'))

// ---------------------------------------------------------------- the core is pure

const IMPURE = new Map([
  ['Date', 'time comes in as an argument'],
  ['performance', 'time comes in as an argument'],
  ['process', 'nothing of the machine is known here'],
  ['globalThis', 'nothing of the machine is known here'],
  ['console', 'say it with a fact'],
  ['fetch', 'the outside is performed by the driver'],
  ['crypto', 'ids and seeds come in with an input'],
  ['async', 'the core is synchronous: emit a fact and let the driver perform it'],
  ['await', 'the core is synchronous: emit a fact and let the driver perform it'],
  ['Promise', 'the core is synchronous: emit a fact and let the driver perform it'],
  ['setTimeout', 'emit `timer.set`'],
  ['setInterval', 'emit `timer.set`'],
  ['setImmediate', 'emit `timer.set`'],
  ['queueMicrotask', 'emit `timer.set`'],
  ['Intl', 'its answer depends on the machine: compare and format by hand'],
  ['WeakRef', 'its answer depends on the garbage collector'],
])
/** Methods whose answer depends on the machine, wherever they hang. */
const IMPURE_METHODS = new Map([
  ['random', 'randomness comes in with an input'],
  ['localeCompare', 'its answer depends on the machine: compare with < and >'],
  ['toLocaleString', 'its answer depends on the machine: format by hand'],
])

export const pureCore: Rule = (file) => {
  if (!isCore(file.path)) return []
  const found = wordsWhere(file, (word) => IMPURE.has(word))
    .map((token) => complain(file, token.line, `\`${token.text}\` in the core: ${IMPURE.get(token.text)}`))
  file.code.forEach((token, place) => {
    const why = file.code[place - 1]?.text === '.' ? IMPURE_METHODS.get(token.text) : undefined
    if (why !== undefined) found.push(complain(file, token.line, `\`.${token.text}\` in the core: ${why}`))
  })
  for (const { specifier, line } of file.imports) {
    if (!specifier.startsWith('.')) found.push(complain(file, line, `\`${specifier}\` in the core: only its own files may be imported`))
  }
  return [...found, ...moduleState(file)]
}

/** A `let` outside every function is state that replay does not see. */
function moduleState(file: SourceFile): Complaint[] {
  let depth = 0
  const found: Complaint[] = []
  for (const token of file.code) {
    if (token.kind === 'punct' && '([{'.includes(token.text)) depth++
    if (token.kind === 'punct' && ')]}'.includes(token.text)) depth--
    if (depth === 0 && token.kind === 'word' && /^(let|var)$/.test(token.text)) {
      found.push(complain(file, token.line, `module-level \`${token.text}\` in the core: keep it in CoreState, where replay finds it`))
    }
  }
  return found
}

// ---------------------------------------------------------------- errors and leftovers

export const noSwallow: Rule = (file) => {
  const pairs = bracketsOf(file.code)
  const found: Complaint[] = []
  file.code.forEach((token, place) => {
    if (token.text !== 'catch' || token.kind !== 'word') return
    const method = /^\??\.$/.test(file.code[place - 1]?.text ?? '')
    const body = method ? promiseCatch(file.code, place) : blockAfter(file.code, pairs, place)
    if (body === null) return
    const end = pairs.get(body) ?? body
    if (end === body + 1) found.push(complain(file, token.line, 'an empty catch: handle it, or let it through; a failure that is fine has a value to return'))
    const only = file.code.slice(body + 1, end).map(({ text }) => text)
    if (only.length === 2 && only[0] === 'throw') found.push(complain(file, token.line, 'a catch that only throws again: remove it'))
  })
  return found
}

const blockAfter = (code: readonly Token[], pairs: ReadonlyMap<number, number>, place: number): number | null => {
  const at = code[place + 1]?.text === '(' ? (pairs.get(place + 1) ?? place) + 1 : place + 1
  return code[at]?.text === '{' ? at : null
}

/** `.catch(() => {})`: the place of the brace, where there is one. */
function promiseCatch(code: readonly Token[], place: number): number | null {
  const arrow = code.findIndex((token, at) => at > place && (token.text === '=>' || token.text === '{'))
  const near = arrow >= 0 && arrow - place <= 5 && code[arrow]?.text === '=>'
  return near && code[arrow + 1]?.text === '{' ? arrow + 1 : null
}

export const noLeftovers: Rule = (file) => {
  if (!isSource(file.path)) return []
  return file.tokens.flatMap((token) => {
    const word = /\b(todo|fixme|xxx|hack)\b/i.exec(token.text)?.[0]
    return word === undefined ? [] : [complain(file, token.line, `says "${word}": do it, or open an issue and say here what holds today`)]
  })
}

export const FILE_RULES: readonly Rule[] = [
  fileLength, functionLength, fileName, headComment, noAny, noIgnore, pureCore, noSwallow, noLeftovers,
]
