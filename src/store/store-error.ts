/** Owns the ways in which the store fails, each with what happened and what to do next. */

type StoreErrorCode =
  | 'data_dir_in_use'
  | 'data_dir_unusable'
  | 'store_newer'
  | 'store_corrupt'
  | 'body_key_lost'
  | 'store_failed'
  | 'store_closed'

export class StoreError extends Error {
  readonly code: StoreErrorCode
  readonly next: string

  constructor(code: StoreErrorCode, what: string, next: string, cause?: unknown) {
    super(`${what} Next: ${next}`, cause === undefined ? {} : { cause })
    this.name = 'StoreError'
    this.code = code
    this.next = next
  }
}

export const reason = (thrown: unknown): string => (thrown instanceof Error ? thrown.message : String(thrown))

/** True for the fault of a system call with this code, such as ENOENT. */
export const isFault = (thrown: unknown, code: string): boolean =>
  thrown instanceof Error && 'code' in thrown && thrown.code === code
