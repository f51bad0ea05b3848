/** Owns saying what of a JSON schema cannot be held by a grammar, and where; and what is wrong with a grammar given as such. */
export class SchemaError extends Error {
  readonly code = 'unsupported_schema'
  /** The tool's name or the request's field, then a JSON pointer into its schema (`lookup#/properties/city`). */
  readonly path: string

  constructor(path: string, why: string) {
    super(`${path}: ${why}`)
    this.path = path
  }
}

export class GrammarError extends Error {}

/** The path of what lies below another. */
export function below(path: string, ...steps: readonly (string | number)[]): string {
  const tail = steps.map((step) => `/${String(step).replaceAll('~', '~0').replaceAll('/', '~1')}`).join('')
  return `${path}${path.includes('#') ? '' : '#'}${tail}`
}
