/** Owns what a person reads where no model file could be had: what happened, what was tried and why not, what to do. */

/** One way to a model file that did not work. */
export interface Tried {
  readonly way: string
  readonly why: string
}

type ModelErrorCode =
  | 'model_not_found' | 'model_unreadable' | 'model_unavailable' | 'model_ambiguous' | 'model_in_use' | 'model_too_large' | 'cache_unwritable'

export class ModelError extends Error {
  readonly code: ModelErrorCode
  readonly tried: readonly Tried[]
  readonly next: string

  constructor(code: ModelErrorCode, what: string, tried: readonly Tried[], next: string) {
    super([what, ...tried.map(({ way, why }) => `  ${way}: ${why}`), `Next: ${next}`].join('\n'))
    this.name = 'ModelError'
    this.code = code
    this.tried = tried
    this.next = next
  }
}

/** The reason under a thrown value in one line; `fetch` hides the real one in `cause`. */
export function reason(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown)
  const cause = thrown.cause instanceof Error ? ` (${thrown.cause.message})` : ''
  return `${thrown.message}${cause}`
}
