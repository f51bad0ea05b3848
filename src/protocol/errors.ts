/**
 * Owns the one table of everything that can be refused or fail before a client: what it is called on the wire, its HTTP
 * status, whether trying again may help, and what to do next. Nothing else knows an HTTP status of an error.
 *
 * Core, engines and codecs speak in the codes of this table; one that is not in it is shown as `internal`.
 */

interface Row {
  readonly status: number
  readonly type: string
  /** What clients already look for, where that is not our code. */
  readonly wireCode?: string
  /** Sent as `x-should-retry`, which SDKs obey before they look at the status (they retry every 409 otherwise). */
  readonly retryable: boolean
  /** Whole seconds, never above 60: some harnesses give up beyond. */
  readonly retryAfterSeconds?: number
  readonly what: string
  readonly next: string
}

const badRequest = (what: string, next: string, wireCode?: string): Row =>
  ({ status: 400, type: 'invalid_request_error', retryable: false, what, next, ...(wireCode === undefined ? {} : { wireCode }) })

const conflict = (what: string, next: string): Row =>
  ({ status: 409, type: 'conflict_error', retryable: false, what, next })

const busy = (status: number, retryAfterSeconds: number, what: string, next: string): Row =>
  ({ status, type: status === 429 ? 'rate_limit_error' : 'server_error', retryable: true, retryAfterSeconds, what, next })

const TABLE = {
  invalid_json: badRequest('The request body is not JSON', 'Send one JSON object, encoded as UTF-8.'),
  invalid_request: badRequest('The request is not valid', 'Correct the field that is named and send it again.'),
  unsupported_parameter: badRequest('The request asks for something that is not supported yet', 'Leave the field that is named out; ignoring it would have changed the result.'),
  unsupported_schema: badRequest('A JSON schema uses something that cannot be enforced', 'Simplify the part that is named, or ask for less: tool_choice "auto", or response_format "json_object".'),
  invalid_grammar: badRequest('The grammar cannot be used', 'Correct the GBNF: all of it must lead from the rule "root".'),
  unknown_token: badRequest('A token is not in the vocabulary of the model', 'Use ids of the tokenizer of the model that is named.'),
  unknown_tool_call: badRequest('A tool result answers a tool call that was not made', 'Send each tool message after the assistant message whose tool_calls contain its tool_call_id; to commit an effect, name a tool call that the program waits or waited for.'),
  missing_tool_results: badRequest('Not every tool call of the last assistant message is answered', 'Send one tool message for each of its tool_calls.'),
  bad_body: badRequest('The engine cannot read the call', 'This is a fault of ours; the server log has more under this request id.'),
  template_failed: badRequest('The chat template of the model cannot render this conversation', 'Change the order or the roles of the messages as the message says.'),
  context_too_long: badRequest('The prompt does not fit in the context of the model', 'Shorten the conversation, or use a model with a larger context.', 'context_length_exceeded'),
  unauthorized: { status: 401, type: 'authentication_error', wireCode: 'invalid_api_key', retryable: false, what: 'The API key is missing or unknown', next: 'Send "Authorization: Bearer KEY" with a key from the configuration.' },
  forbidden: { status: 403, type: 'permission_error', retryable: false, what: 'The request is not allowed from where it comes', next: 'Without configured tenants only programs on this machine are served; use 127.0.0.1 or localhost, or configure tenants.' },
  not_found: { status: 404, type: 'invalid_request_error', retryable: false, what: 'There is nothing at this address', next: 'Look at the path; the API begins with /v1.' },
  unknown_model: { status: 404, type: 'invalid_request_error', wireCode: 'model_not_found', retryable: false, what: 'No engine serves this model', next: 'GET /v1/models lists those that are served.' },
  unknown_program: { status: 404, type: 'invalid_request_error', retryable: false, what: 'There is no such program under this key', next: 'GET /v1/programs lists the programs of this key; old ones are forgotten.' },
  unknown_node: { status: 404, type: 'invalid_request_error', retryable: false, what: 'The program has no such node', next: 'Declare it first, in this report or an earlier one.' },
  unknown_thread: { status: 404, type: 'invalid_request_error', retryable: false, what: 'The program has no such thread', next: 'GET /v1/programs/{id} lists its threads by their calls.' },
  unknown_call: { status: 404, type: 'invalid_request_error', retryable: false, what: 'The program has no such call', next: 'GET /v1/programs/{id} lists its calls.' },
  unknown_engine: { status: 404, type: 'invalid_request_error', retryable: false, what: 'There is no such engine, or it has never joined', next: 'GET /v1/admin/engines lists them with their stages.' },
  method_not_allowed: { status: 405, type: 'invalid_request_error', retryable: false, what: 'This address does not answer this method', next: 'Use one of the methods in the allow header.' },
  request_timeout: { status: 408, type: 'invalid_request_error', retryable: true, what: 'The request did not arrive in time', next: 'Send it again.' },
  duplicate_program: conflict('A program with this id exists', 'Choose another id, or leave it out and use the one that is returned.'),
  parent_conflict: conflict('The program cannot have this parent', 'Name the program whose sub-agent it is when it is declared, once; a chain of parents has an end.'),
  parent_failed: conflict('What it waits for has failed or was cancelled', 'Send the conversation again as it stands, or report another way through the graph.'),
  unknown_parent: badRequest('A parent is not known', 'Name nodes that were declared, or calls of this program by the id of their reply.'),
  foreign_parent: badRequest('A parent belongs to another program', 'Name nodes and calls of this program only; another program can be its parent program.'),
  node_conflict: conflict('A node is not what it is said to be', 'A node is declared once; only an open join may get more parents.'),
  node_closed: conflict('The node has ended, or is taken', 'Nothing was changed; use another name for another node.'),
  parents_open: conflict('The node cannot have ended before its parents', 'Report its parents first.'),
  graph_cycle: conflict('Something would wait for itself', 'Leave out the edge that closes the circle, or use another thread.'),
  graph_full: conflict('The graph of the program is full', 'Declare less at a time, start a sub-agent, or raise the limit that is named.'),
  program_full: conflict('The program has made as many calls as it may', 'Start a sub-agent or a new program, or raise the limit that is named.'),
  join_unmeetable: conflict('The rule of a join can never be met', 'State a rule that its parents can still meet.'),
  thread_exists: conflict('The thread exists already', 'Fork under another name.'),
  thread_cancelled: conflict('The thread was cancelled', 'Nothing of it runs any more; use another thread.'),
  program_cancelled: conflict('The program was cancelled', 'Nothing of it runs any more; start a new program.'),
  program_busy: conflict('The program cannot end yet', 'Wait for its calls, cancel them, or cancel the program.'),
  program_ended: conflict('The program has ended', 'Start a new program for more calls.'),
  stale_epoch: conflict('The request belongs to another epoch of its program', 'Nothing was changed; drop this result and follow the current epoch.'),
  engine_refused: { status: 400, type: 'invalid_request_error', retryable: false, what: 'The engine refused the call', next: 'Change what the message names.' },
  cancelled: conflict('The call was cancelled', 'Send it again only if it is still wanted.'),
  body_too_large: { status: 413, type: 'invalid_request_error', retryable: false, what: 'The request body is too large', next: 'Send less, or raise limits.bodyMiBMax.' },
  unsupported_media_type: { status: 415, type: 'invalid_request_error', retryable: false, what: 'The request body is not declared as JSON', next: 'Send "Content-Type: application/json".' },
  queue_full: busy(429, 5, 'Too many calls are waiting', 'Try again after the time in retry-after.'),
  tenant_full: busy(429, 5, 'Too much of this tenant is open at once', 'Let some of them end, and try again after the time in retry-after.'),
  queue_timeout: busy(503, 10, 'The call waited too long for its turn', 'Try again after the time in retry-after, or raise limits.queueHoldSeconds.'),
  engine_unavailable: busy(503, 5, 'No engine can take the call', 'Try again after the time in retry-after; /readyz says what each engine does.'),
  interrupted: busy(503, 5, 'The call was interrupted', 'Send it again; nothing of it was committed.'),
  store_failed: busy(503, 10, 'The store cannot write', 'Look for a full disk under dataDir; then try again.'),
  shutting_down: busy(503, 5, 'The server is stopping', 'Try again after the time in retry-after.'),
  attempts_exhausted: { status: 500, type: 'server_error', retryable: false, what: 'Every attempt at the call failed', next: 'Look at GET /v1/programs/{id}/facts for the reason of each.' },
  internal: { status: 500, type: 'server_error', retryable: true, what: 'Something failed that should not', next: 'The server log has more under this request id.' },
} as const satisfies Record<string, Row>

type ErrorCode = keyof typeof TABLE

/** All that a door needs to answer with an error. */
export interface Problem {
  readonly code: ErrorCode
  readonly status: number
  readonly headers: Readonly<Record<string, string>>
  readonly body: { readonly error: { readonly message: string; readonly type: string; readonly param: string | null; readonly code: string } }
}

/** Collects what is wrong while a call is put together; the first is told. */
export type Refuse = (code: ErrorCode, why: string, param: string) => void

/** `why` is a clause that says what was seen, with its numbers; `param` the field of the request, where there is one. */
export function problem(code: ErrorCode, why = '', param: string | null = null): Problem {
  const row: Row = TABLE[code]
  const clause = why.trim().replace(/\.$/, '')
  return {
    code,
    status: row.status,
    headers: {
      'x-should-retry': String(row.retryable),
      ...(row.retryAfterSeconds === undefined ? {} : { 'retry-after': String(row.retryAfterSeconds) }),
      ...(row.status === 401 ? { 'www-authenticate': 'Bearer' } : {}),
    },
    body: {
      error: {
        message: `${row.what}${clause === '' ? '' : `: ${clause}`}. ${row.next}`,
        type: row.type,
        param,
        code: row.wireCode ?? code,
      },
    },
  }
}

/** For codes that come from elsewhere as text (core, engines). */
export function problemOf(code: string, why: string): Problem {
  return isErrorCode(code) ? problem(code, why) : problem('internal', `${code}: ${why}`)
}

export const isErrorCode = (code: string): code is ErrorCode => Object.hasOwn(TABLE, code)

/** For tests and documentation: every code there is. */
export const ERROR_CODES = Object.keys(TABLE) as readonly ErrorCode[]
