/**
 * Owns what no input may hold, whoever sends it: numbers that are no amounts. It is checked once, at the door, so that no
 * decision needs to; and a report that makes no sense is taken for the failure that it is, so that nobody waits for a
 * better one. Bounds are wide: they keep sums exact, and leave what is sensible to the decisions.
 */
import { attemptFailed, measureFailed } from './call.ts'
import { ignore, type Deciding } from './deciding.ts'
import type { Input } from './input.ts'
import { moveFailed } from './kv/kv.ts'

/** Above any amount of tokens, bytes, granules or microseconds that one input can mean; thousands of them add up exactly. */
const AMOUNT_MAX = 2 ** 40

/** Points in time may lie before the clock's zero, and far from it. */
const POINTS: ReadonlySet<string> = new Set(['deadlineUs', 'wallOffsetUs'])

/** What is wrong with the first number that is, or null. */
export function malformed(input: Input): string | null {
  const wrong = wrongIn(input)
  if (wrong !== null) return wrong
  if (input.kind === 'finished' && input.spans.some(({ tokens }) => tokens === 0)) return 'a span has no tokens'
  if (input.kind === 'engineJoined' && input.capabilities.memory?.granule === 0) return 'granule is 0'
  return null
}

function wrongIn(value: object): string | null {
  for (const name in value) {
    const field = (value as { readonly [name: string]: unknown })[name]
    if (typeof field === 'number') {
      if (!isAmount(name, field)) return `${name} is ${field}`
    } else if (typeof field === 'object' && field !== null) {
      const wrong = wrongIn(field)
      if (wrong !== null) return wrong
    }
  }
  return null
}

const isAmount = (name: string, value: number): boolean =>
  Number.isSafeInteger(value) && (POINTS.has(name) || (value >= 0 && value <= AMOUNT_MAX))

/** What a client asked is refused; what an engine owes is taken as failed; what nobody waits for is ignored. */
export function refuseMalformed(d: Deciding, input: Input, why: string): void {
  switch (input.kind) {
    case 'submit':
      return d.emit({ kind: 'call.refused', call: input.call, code: 'invalid_request', why })
    case 'declareProgram':
    case 'reportGraph':
      return d.emit({ kind: 'program.refused', tenant: input.tenant, program: input.program, code: 'invalid_request', why })
    case 'measured':
      return measureFailed(d, { kind: 'measureFailed', call: input.call, code: 'internal', why: `its measurement makes no sense: ${why}` })
    case 'finished':
    case 'paused': {
      const { engine, reign, call, attempt, run, epoch } = input
      return attemptFailed(d, { kind: 'attemptFailed', engine, reign, call, attempt, run, epoch, retryable: true, why: `its report makes no sense: ${why}` })
    }
    case 'moveDone': {
      const { engine, reign, move } = input
      return moveFailed(d, { kind: 'moveFailed', engine, reign, move, sourceLost: false, why: `its report makes no sense: ${why}` })
    }
    default:
      return ignore(d, input.kind, 'engine' in input ? input.engine : input.kind, why)
  }
}
