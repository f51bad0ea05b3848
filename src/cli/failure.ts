/**
 * Owns how a verb ends when it cannot do its work: what happened, why, what to do next, and the exit code. No stack
 * unless `--debug` asks for it.
 */

/** 0 is done; the others are these. Scripts rely on them. */
export const EXIT = { failed: 1, usage: 2, unreachable: 3 } as const

export class CliFailure extends Error {
  readonly exitCode: number
  readonly why: string | null
  readonly next: string | null

  constructor(exitCode: number, what: string, why: string | null, next: string | null) {
    super(what)
    this.name = 'CliFailure'
    this.exitCode = exitCode
    this.why = why
    this.next = next
  }
}

/** Errors whose message already says what, why and what next. */
const SELF_EXPLAINING = new Map([['ConfigError', EXIT.usage], ['ModelError', EXIT.failed]])

export interface Told { readonly text: string; readonly exitCode: number }

export function tell(thrown: unknown, debug: boolean): Told {
  const stack = debug && thrown instanceof Error && thrown.stack !== undefined ? `\n${stackOf(thrown)}` : ''
  if (thrown instanceof CliFailure) {
    const { exitCode, message, why, next } = thrown
    return { exitCode, text: lines(message, why, next) + stack }
  }
  if (!(thrown instanceof Error)) return { exitCode: EXIT.failed, text: lines(String(thrown), null, null) }
  const known = SELF_EXPLAINING.get(thrown.name)
  if (known !== undefined) return { exitCode: known, text: lines(thrown.message, null, null) + stack }
  const code = 'code' in thrown ? String(thrown.code) : ''
  const why = thrown.cause instanceof Error ? thrown.cause.message : null
  return { exitCode: EXIT.failed, text: lines(thrown.message, why, nextFor(code, debug)) + stack }
}

function nextFor(code: string, debug: boolean): string | null {
  if (code === 'EADDRINUSE') return 'stop what listens there, or choose another port with --port (0 takes any free one).'
  if (code === 'EACCES' || code === 'EPERM') return 'choose a folder or port this user may use.'
  if (code === 'ENOSPC') return 'free some disk, or move dataDir.'
  return debug ? null : 'the same command with --debug shows where.'
}

const lines = (what: string, why: string | null, next: string | null): string =>
  [`entracte: ${what}`, ...(why === null ? [] : [`  why: ${why}`]), ...(next === null ? [] : [`  next: ${next}`])].join('\n')

function stackOf(error: Error): string {
  const cause = error.cause instanceof Error ? `\ncaused by ${stackOf(error.cause)}` : ''
  return `${error.stack ?? error.message}${cause}`
}
