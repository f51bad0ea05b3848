/**
 * Owns the wire of `/v1/programs/{id}/graph`: what a runtime reports of its program's graph. A report is of one program,
 * whose id is in the path; what it may say beyond its shape, the core decides. A key that is not known is refused, since a
 * misspelt one would change what is waited for.
 */
import { z } from 'zod'
import type { Problem } from './errors.ts'
import { callIdIn, id } from './program.ts'
import { bodyProblem } from './schema-fault.ts'

const WHY_CHARS_MAX = 1_000
const KINDS = ['LLM', 'TOOL', 'CODE', 'HUMAN', 'JOIN'] as const
const EDGES = ['data', 'control'] as const

/** A node by its name, or a call by the id of its reply. */
const parentName = id.transform(callIdIn)
const parent = z.union([
  parentName.transform((node) => ({ node, edge: 'data' as const })),
  z.strictObject({ id: parentName, edge: z.enum(EDGES).default('data') }).transform(({ id: node, edge }) => ({ node, edge })),
])

/** `siblings`: what becomes of branches that are open when the join has fired, or can no longer fire. */
const siblings = z.enum(['cancel', 'continue']).default('cancel')
const join = z.discriminatedUnion('rule', [
  z.strictObject({ rule: z.literal('all'), siblings }),
  z.strictObject({ rule: z.literal('any'), siblings }),
  z.strictObject({ rule: z.literal('partial'), atLeast: z.int().min(1), siblings }),
]).transform((stated) => ({
  need: stated.rule === 'partial' ? { kind: stated.rule, atLeast: stated.atLeast } : { kind: stated.rule },
  siblings: stated.siblings,
}))

const node = z.strictObject({
  id, kind: z.enum(KINDS), thread: id.nullable().default(null), parents: z.array(parent).default([]), join: join.nullable().default(null),
  serviceUs: z.int().min(0).nullable().default(null),
}).transform(({ id: name, ...rest }) => ({ node: name, ...rest }))

const outcome = z.strictObject({
  id, outcome: z.enum(['completed', 'failed', 'cancelled']), why: z.string().max(WHY_CHARS_MAX).default(''),
}).transform(({ id: name, ...rest }) => ({ node: name, ...rest }))

const report = z.strictObject({
  epoch: z.int().min(0).nullable().default(null),
  parent: id.nullable().default(null),
  forks: z.array(z.strictObject({ thread: id, from: id })).default([]),
  nodes: z.array(node).default([]),
  outcomes: z.array(outcome).default([]),
})

type ParsedReport = { readonly ok: true; readonly report: z.output<typeof report> } | { readonly ok: false; readonly problem: Problem }

export function parseReport(json: unknown): ParsedReport {
  const parsed = report.safeParse(json)
  return parsed.success ? { ok: true, report: parsed.data } : { ok: false, problem: bodyProblem(parsed.error) }
}

/** How many nodes are how far; the answer to a report. */
export interface GraphView {
  readonly object: 'graph'
  readonly program: string
  readonly nodes: { readonly open: number; readonly committed: number; readonly failed: number; readonly cancelled: number }
}
