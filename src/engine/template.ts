/** Owns the chat template. Signatures first; the rest follows. */
export interface TemplateSource {
  /** Jinja, as the model file carries it. */
  readonly source: string
  /** What the special tokens spell; '' where the model has none. */
  readonly bosText: string
  readonly eosText: string
  /** The vocabulary wants a beginning token even where the template writes none. */
  readonly addBos: boolean
}

export class ChatTemplate {
  /** Throws TemplateError where the source is no template. */
  static compile(_source: TemplateSource): ChatTemplate {
    throw new Error('not built yet')
  }
}
