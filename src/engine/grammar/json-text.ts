/**
 * Owns how JSON is written where we write it or force it: `", "` and `": "`, no other space, members in order. It is
 * what Python's json.dumps gives and so what the `tojson` of chat templates gives and what models have seen.
 */
export function jsonText(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(jsonText).join(', ')}]`
  if (typeof value === 'object' && value !== null) {
    const members = Object.entries(value).filter(([, member]) => member !== undefined)
    return `{${members.map(([key, member]) => `${JSON.stringify(key)}: ${jsonText(member)}`).join(', ')}}`
  }
  return JSON.stringify(value) ?? 'null'
}

/** Nothing deeper is called equal. */
const DEPTH_MAX = 256

/** Equal as JSON: the order of members and the space between tokens do not count. */
export function jsonEqual(a: unknown, b: unknown, depth = 0): boolean {
  if (a === b) return true
  if (depth > DEPTH_MAX) return false
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null) return false
  if (Array.isArray(a) || Array.isArray(b)) {
    return Array.isArray(a) && Array.isArray(b) && a.length === b.length
      && a.every((item, i) => jsonEqual(item, b[i], depth + 1))
  }
  const left = Object.entries(a)
  const right = new Map<string, unknown>(Object.entries(b))
  return left.length === right.size
    && left.every(([key, value]) => right.has(key) && jsonEqual(value, right.get(key), depth + 1))
}

/** Two texts of JSON that are equal. */
export function sameJson(a: string, b: string): boolean {
  if (a === b) return true
  try {
    return jsonEqual(JSON.parse(a), JSON.parse(b))
  } catch (error) {
    // What is no JSON is equal only as text.
    if (error instanceof SyntaxError) return false
    throw error
  }
}
