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

/** Faults of what the user gave, though another layer found them. */
const USAGE: ReadonlySet<string> = new Set(['ConfigError'])

interface Told { readonly text: string; readonly exitCode: number }

export function tell(thrown: unknown, debug: boolean): Told {
  const exitCode = thrown instanceof CliFailure ? thrown.exitCode : thrown instanceof Error && USAGE.has(thrown.name) ? EXIT.usage : EXIT.failed
  if (!(thrown instanceof Error)) return { exitCode, text: lines(String(thrown), null, null) }
  const why = thrown instanceof CliFailure ? thrown.why : thrown.cause instanceof Error ? whatOf(thrown.cause) : null
  const next = 'next' in thrown && (typeof thrown.next === 'string' || thrown.next === null) ? thrown.next : nextFor(thrown, debug)
  return { exitCode, text: lines(whatOf(thrown), why, next) + (debug ? `\n${stackOf(thrown)}` : '') }
}

/** Other layers put what to do next at the end of their messages. */
const whatOf = (error: Error): string => error.message.replace(/\s*Next: [^]*$/, '')

function nextFor(error: Error, debug: boolean): string | null {
  const code = 'code' in error ? error.code : null
  if (USAGE.has(error.name)) return null
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
