/**
 * Owns how a fault found by a schema is told: the path of the field as its author writes it, and what was expected.
 * Where the field came from is the caller's to say; for a request body, `bodyProblem` does.
 */
import type { z } from 'zod'
import { problem, type Problem } from './errors.ts'

type Issue = z.core.$ZodIssue

interface SchemaFault {
  /** Keys and indexes from the root; for an unknown key it ends in that key. */
  readonly path: readonly PropertyKey[]
  readonly text: string
}

export function schemaFaults(error: z.ZodError): readonly SchemaFault[] {
  return error.issues.flatMap((issue) => faultsOf(issue, []))
}

/** The first fault, as the answer to the request that carried the body. */
export function bodyProblem(error: z.ZodError): Problem {
  const [fault] = schemaFaults(error)
  const name = fieldName(fault?.path ?? [])
  if (name === '') return problem('invalid_request', `the body: ${fault?.text ?? 'does not fit'}`)
  return problem('invalid_request', `"${name}" ${fault?.text ?? 'does not fit'}`, name)
}

export function fieldName(path: readonly PropertyKey[]): string {
  return path.reduce<string>((name, key) => {
    if (typeof key === 'number') return `${name}[${key}]`
    return name === '' ? String(key) : `${name}.${String(key)}`
  }, '')
}

function faultsOf(issue: Issue, above: readonly PropertyKey[]): readonly SchemaFault[] {
  const path = [...above, ...issue.path]
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ path: [...path, key], text: 'is not a known key' }))
  }
  if (issue.code === 'invalid_union' && issue.errors.length > 0) {
    const branch = closestBranch(issue.errors)
    if (branch !== null) return branch.flatMap((inner) => faultsOf(inner, path))
    return [{ path, text: issue.errors.map((branchIssues) => branchIssues.map(textOf).join(' and ')).join(', or ') }]
  }
  return [{ path, text: textOf(issue) }]
}

/** The branch that got furthest is the one its author meant. */
function closestBranch(branches: readonly (readonly Issue[])[]): readonly Issue[] | null {
  const depth = (branch: readonly Issue[]): number => Math.max(0, ...branch.map((issue) => issue.path.length))
  const deepest = branches.reduce<readonly Issue[]>((best, branch) => (depth(branch) > depth(best) ? branch : best), [])
  return depth(deepest) === 0 ? null : deepest
}

function textOf(issue: Issue): string {
  const missing = issue.code === 'invalid_type' && issue.message.endsWith('received undefined')
  if (missing) return `is missing (${issue.expected})`
  const text = issue.message.replace(/^Invalid input: /, '')
  return text.charAt(0).toLowerCase() + text.slice(1)
}
