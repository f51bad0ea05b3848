/** Owns saying what of a tool's JSON schema cannot be held by a grammar, and where. */
export class SchemaError extends Error {
  readonly code = 'unsupported_schema'
  /** From the tool's name down, in dots. */
  readonly path: string

  constructor(path: string, why: string) {
    super(`${path}: ${why}`)
    this.path = path
  }
}
