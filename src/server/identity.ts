/**
 * Owns which program a request says it belongs to: one table of headers, read top down. What is found is a claim and
 * may shape accounting and affinity; it never sets class or deadline (invariant 8), and the core keeps it apart by
 * tenant. Leaves to the core: the link from a tool result to the call that asked for it.
 */
import { createHash } from 'node:crypto'
import type { Claims } from '../core/input.ts'
import type { IdentitySource } from '../core/state.ts'
import { callIdIn, isPlainId } from '../protocol/program.ts'

type Field = 'program' | 'parent' | 'node' | 'parents' | 'thread' | 'session' | 'epoch' | 'final' | 'agent'

interface Rule {
  /** Lower case, with hyphens; underscores and capitals on the wire are the same. */
  readonly header: string
  readonly source: IdentitySource
  readonly gives: Field
  /** Means this only beside an explicit program. */
  readonly besideProgram?: true
  /** Means this only where a session is named and no program; a parent is a session then. */
  readonly besideSession?: true
  /** Means this only beside that header. */
  readonly beside?: string
  /** Whose client sends it. */
  readonly harness?: string
}

/** For each field the first that is present wins; the first program or session names the source. */
const RULES: readonly Rule[] = [
  { header: 'x-program-id', source: 'explicit', gives: 'program' },
  { header: 'x-program-parent-id', source: 'explicit', gives: 'parent', besideProgram: true },
  { header: 'x-program-call-id', source: 'explicit', gives: 'node', besideProgram: true },
  { header: 'x-program-parent-call-ids', source: 'explicit', gives: 'parents', besideProgram: true },
  { header: 'x-program-thread-id', source: 'explicit', gives: 'thread' },
  { header: 'x-thread-id', source: 'explicit', gives: 'thread', besideProgram: true },
  { header: 'x-program-epoch', source: 'explicit', gives: 'epoch' },
  { header: 'x-program-final', source: 'explicit', gives: 'final' },
  { header: 'x-program-agent', source: 'explicit', gives: 'agent' },
  // A sub-agent of Claude Code is named beside its session, and is a conversation of its own below it.
  { header: 'x-claude-code-agent-id', source: 'native', gives: 'session', harness: 'claude-code', beside: 'x-claude-code-session-id' },
  { header: 'x-claude-code-parent-agent-id', source: 'native', gives: 'parent', besideSession: true, beside: 'x-claude-code-agent-id' },
  { header: 'x-claude-code-session-id', source: 'native', gives: 'parent', besideSession: true, beside: 'x-claude-code-agent-id' },
  { header: 'x-claude-code-session-id', source: 'native', gives: 'session', harness: 'claude-code' },
  { header: 'x-dynamo-session-id', source: 'derived', gives: 'session' },
  { header: 'x-dynamo-parent-session-id', source: 'derived', gives: 'parent', besideSession: true },
  { header: 'x-session-id', source: 'derived', gives: 'session' },
  { header: 'x-session-affinity', source: 'derived', gives: 'session' },
  { header: 'x-parent-session-id', source: 'derived', gives: 'parent', besideSession: true },
]

const CONFIDENCE: Readonly<Record<IdentitySource, number>> =
  { explicit: 100, native: 90, derived: 70, inferred: 50, anonymous: 0 }

/** A header that was there and not used. */
export interface IgnoredHeader {
  readonly header: string
  readonly why: 'repeated' | 'not-plain' | 'malformed'
}

export interface Identified {
  readonly claims: Claims
  readonly ignored: readonly IgnoredHeader[]
}

interface ChatClaims {
  readonly tools: readonly { readonly name: string }[]
  readonly toolResults: readonly string[]
}

export function identify(rawHeaders: readonly string[], chat: ChatClaims): Identified {
  const ignored: IgnoredHeader[] = []
  const values = readHeaders(rawHeaders, ignored)
  const found = new Map<Field, { readonly rule: Rule; readonly value: string }>()
  for (const rule of RULES) {
    const value = values.get(rule.header)
    if (value === undefined || found.has(rule.gives) || !isMeant(rule, found, values)) continue
    if (MALFORMED[rule.gives]?.test(value) === false) ignored.push({ header: rule.header, why: 'malformed' })
    else found.set(rule.gives, { rule, value })
  }
  const source = (found.get('program') ?? found.get('session'))?.rule.source ?? 'anonymous'
  const epoch = found.get('epoch')
  const claims: Claims = {
    identity: { source, confidence: CONFIDENCE[source] },
    program: found.get('program')?.value ?? null,
    thread: found.get('thread')?.value ?? null,
    session: found.get('session')?.value ?? null,
    parent: found.get('parent')?.value ?? null,
    node: found.get('node')?.value ?? null,
    parents: namesIn(found.get('parents')?.value).map(callIdIn),
    epoch: epoch === undefined ? null : Number(epoch.value),
    final: /^(true|1)$/i.test(found.get('final')?.value ?? ''),
    toolResults: chat.toolResults,
    kind: found.get('agent')?.value ?? undeclaredKind(found.get('session')?.rule.harness ?? null, chat.tools),
  }
  return { claims, ignored }
}

function isMeant({ besideProgram, besideSession, beside }: Rule, found: ReadonlyMap<Field, unknown>, values: ReadonlyMap<string, string>): boolean {
  if (besideProgram && !found.has('program')) return false
  if (besideSession && (found.has('program') || !found.has('session'))) return false
  return beside === undefined || values.has(beside)
}

/** A list in a header is set apart by commas. */
const namesIn = (list: string | undefined): readonly string[] => list?.split(',').map((name) => name.trim()) ?? []

/** What a value must look like, beyond being plain. */
const MALFORMED: Readonly<Partial<Record<Field, RegExp>>> = { epoch: /^\d{1,15}$/, final: /^(true|false|0|1)$/i }

const LISTS: ReadonlySet<string> = new Set(RULES.filter(({ gives }) => gives === 'parents').map(({ header }) => header))

/** Known headers with one plain value, by their name in the table. */
function readHeaders(rawHeaders: readonly string[], ignored: IgnoredHeader[]): ReadonlyMap<string, string> {
  const known = new Set(RULES.map((rule) => rule.header))
  const seen = new Map<string, string[]>()
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    const header = (rawHeaders[at] ?? '').toLowerCase().replaceAll('_', '-')
    if (known.has(header)) seen.set(header, [...seen.get(header) ?? [], (rawHeaders[at + 1] ?? '').trim()])
  }
  const values = new Map<string, string>()
  for (const [header, [value, ...more]] of seen) {
    if (more.length > 0) ignored.push({ header, why: 'repeated' })
    else if (value === undefined || !(LISTS.has(header) ? namesIn(value).every(isPlainId) : isPlainId(value))) ignored.push({ header, why: 'not-plain' })
    else values.set(header, value)
  }
  return values
}

/** Agents with the same tools are alike; what is learned, is learned by kind. */
function undeclaredKind(harness: string | null, tools: readonly { readonly name: string }[]): string {
  if (tools.length === 0) return harness ?? 'chat'
  const names = tools.map((tool) => tool.name).sort().join('\n')
  return `${harness ?? 'tools'}:${createHash('sha256').update(names).digest('hex').slice(0, 8)}`
}
