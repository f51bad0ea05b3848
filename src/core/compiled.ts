/** Owns code that is made from the shape of data, and what is done where a process was told to make none. */

/** A function of these parameters; null where code may not be made from strings. */
export function compiled<T extends (...args: never[]) => unknown>(parameters: readonly string[], body: string): T | null {
  try {
    return new Function(...parameters, body) as unknown as T
  } catch (error) {
    if (error instanceof EvalError) return null
    throw error
  }
}
