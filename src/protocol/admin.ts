/** Owns the wire of what operators and model pickers read: models with what their engines can do, readiness, pages. */

export interface ModelView {
  readonly id: string
  readonly object: 'model'
  /** Seconds since 1970. */
  readonly created: number
  readonly owned_by: 'entracte'
  /** Our extension: one entry for each engine that serves it. */
  readonly entracte: { readonly engines: readonly ModelEngineView[] }
}

export interface ModelEngineView {
  readonly id: string
  readonly contextTokens: number
  readonly runningMax: number
  /** Whether a resumed State yields the same tokens, and why that is known. */
  readonly exact: { readonly answer: string; readonly because: string }
  /** What the engine declares; the rest of it, by name. */
  readonly capabilities: Readonly<Record<string, unknown>>
}

export interface ReadyView {
  readonly status: 'ready' | 'starting'
  /** `starting`, `joined`, `lost`, `crash-loop` or `refused`. */
  readonly engines: readonly { readonly id: string; readonly stage: string }[]
}

/** `next` goes into the query's `after` for the page that follows; null on the last. */
export interface Page<Item> {
  readonly object: 'list'
  readonly data: readonly Item[]
  readonly next: string | null
}
