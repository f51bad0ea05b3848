/**
 * Owns the text of a server-sent event stream as OpenAI clients read it. A comment is ignored by every client, so it
 * keeps proxies and clients awake while a call is queued.
 */
export const SSE_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  'x-accel-buffering': 'no',
} as const

/** One event; JSON text has no line breaks, so one line holds it. */
export const sseData = (value: object): string => `data: ${JSON.stringify(value)}\n\n`

export const SSE_QUEUED = ': queued\n\n'

export const SSE_DONE = 'data: [DONE]\n\n'
