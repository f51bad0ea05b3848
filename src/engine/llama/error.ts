/** Owns how a failure of the native library is told: what happened, why, and what to do next, in one message. */
type LlamaErrorCode = 'library' | 'layout' | 'model' | 'memory' | 'decode' | 'state'

export class LlamaError extends Error {
  readonly code: LlamaErrorCode

  constructor(code: LlamaErrorCode, message: string) {
    super(message)
    this.name = 'LlamaError'
    this.code = code
  }
}
