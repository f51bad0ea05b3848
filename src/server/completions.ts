/**
 * Owns the life of one chat completion at the door: read, identified, submitted, shown, as a stream or whole. Headers
 * of a stream are held back until there is something to show or a sign of life is due, so that a refusal found while
 * the call is sized still has its own status. Leaves to the gateway everything about when and where it runs.
 */
import { createHash } from 'node:crypto'
import type { FastifyReply } from 'fastify'
import type { Claims } from '../core/input.ts'
import type { CallUpdate, Submission } from '../driver/gateway.ts'
import { problem, problemOf, type Problem } from '../protocol/errors.ts'
import { parseChat, type ChatRequest } from '../protocol/openai.ts'
import { completion, finishChunk, partChunk, ReplyText, roleChunk, usageChunk, type ReplyChoice, type ReplyEnd, type ReplyHead } from '../protocol/openai-reply.ts'
import { sseData, SSE_DONE, SSE_QUEUED } from '../protocol/sse.ts'
import { submitChoices, type Arrived } from './choices.ts'
import { deadlineOf, sendProblem, type Credential, type Door, type Handler } from './door.ts'
import { identify } from './identity.ts'
import { SseReply } from './sse-reply.ts'
import { UpdateFeed, type FeedStep } from './update-feed.ts'

/** Says for one call whether recompute must give the same tokens; a header, as it is not part of the prompt. */
const EXACT_HEADER = 'x-resume-exact'
/** What a call waits for, and what it is fenced by: one that cannot be read is refused, where others are ignored and counted. */
const BINDING_HEADERS: ReadonlySet<string> = new Set(['x-program-call-id', 'x-program-parent-call-ids', 'x-program-epoch'])
/** A rough size until the engine's tokenizer has counted. */
const CHARS_PER_TOKEN = 4

type Done = Extract<CallUpdate, { kind: 'done' }>

export const completions = (door: Door): Handler => async (request, reply, credential) => {
  const parsed = parseChat(request.body)
  if (!parsed.ok) return sendProblem(reply, parsed.problem)
  const exact = exactOf(request.headers[EXACT_HEADER])
  if (exact === undefined) {
    return sendProblem(reply, problem('invalid_request', `"${EXACT_HEADER}" is neither true nor false`, EXACT_HEADER))
  }
  const identified = identify(request.raw.rawHeaders, { tools: parsed.request.call.tools, ...parsed.request })
  door.metrics.identified(identified.claims.identity.source, identified.ignored)
  const unusable = identified.ignored.find(({ header }) => BINDING_HEADERS.has(header))
  if (unusable !== undefined) {
    return sendProblem(reply, problem('invalid_request', `"${unusable.header}" is ${unusable.why}, and without it the call would mean something else`, unusable.header))
  }
  const asked: Asked = { door, claims: identified.claims, chat: parsed.request, credential, exact }
  const answer = new Answer(door, reply, parsed.request)
  const choices = submitChoices(door.gateway, parsed.request.choices, (choice, first) => submissionOf(asked, choice, first))
  const feed = new UpdateFeed(choices, reply.raw, () => door.metrics.hungUp(answer.stage))
  door.feeds.add(feed)
  try {
    return await (parsed.request.stream ? stream(answer, feed) : whole(answer, feed))
  } finally {
    door.feeds.delete(feed)
  }
}

// ---------------------------------------------------------------- in

interface Asked {
  readonly door: Door
  readonly claims: Claims
  readonly chat: ChatRequest
  readonly credential: Credential
  readonly exact: boolean | null
}

function submissionOf({ door, claims, chat, credential, exact }: Asked, choice: number, first: Arrived | null): Submission {
  const { call } = chat
  const body = JSON.stringify(choice === 0 ? call : { ...call, choice })
  const exactResume = exact ?? credential.exactResume
  // The same words for another program or node, or under another epoch, are another call and not a retry.
  const marks = [credential.tenant, claims.program, claims.session, claims.thread, claims.node, claims.epoch, chat.seed, exactResume, chat.choices]
  return {
    tenant: credential.tenant,
    claims: claimsOf(claims, chat.choices, choice, first),
    model: call.model,
    body,
    digest: createHash('sha256').update(JSON.stringify(marks)).update(body).digest('hex'),
    promptTokensEstimate: Math.ceil(body.length / CHARS_PER_TOKEN),
    maxTokens: call.maxTokens ?? contextOf(door, call.model),
    seed: chat.seed,
    exactResume,
    priorityClass: credential.priorityClass,
    deadlineUs: deadlineOf(door, credential),
  }
}

/** The first choice is whose call the request says it is; the others are beside it, and the program's last call is the last of them. */
function claimsOf(claims: Claims, choices: number, choice: number, first: Arrived | null): Claims {
  const final = claims.final && choice === choices - 1
  if (first === null) return { ...claims, final }
  const { program, identity, call } = first
  return { ...claims, program, identity, thread: null, node: null, parent: null, final, beside: call }
}

/** Null: not said. Undefined: said in a way that means neither. */
function exactOf(header: string | string[] | undefined): boolean | null | undefined {
  if (header === undefined) return null
  const text = String(header).trim().toLowerCase()
  return text === 'true' || (text === 'false' ? false : undefined)
}

/** Without a maximum a call may fill the context; where nothing serves the model, the core says what becomes of it. */
function contextOf(door: Door, model: string): number {
  const engines = [...door.gateway.core.engines.values()].filter((engine) => engine.capabilities.models.includes(model))
  return engines.reduce((most, engine) => Math.max(most, engine.capabilities.contextTokens), 1)
}

// ---------------------------------------------------------------- out

/** What is known of one answer so far, and how long it may stay silent. */
class Answer {
  readonly reply: FastifyReply
  readonly chat: ChatRequest
  readonly door: Door
  readonly #heldUntilMs: number
  head: ReplyHead | null = null
  /** Something of the call was shown, or could have been. */
  begun = false
  readonly #calls = new Map<number, ReplyChoice>()
  readonly #opened = new Set<number>()
  /** Of the choices that have ended. */
  readonly #ends = new Map<number, ReplyEnd>()

  constructor(door: Door, reply: FastifyReply, chat: ChatRequest) {
    this.door = door
    this.reply = reply
    this.chat = chat
    this.#heldUntilMs = performance.now() + door.limits.queueHoldMs
  }

  /** For the count of clients that left. */
  get stage(): 'arriving' | 'waiting' | 'streaming' {
    if (this.begun) return 'streaming'
    return this.head === null ? 'arriving' : 'waiting'
  }

  get holdLeftMs(): number {
    return this.begun ? Infinity : Math.max(0, this.#heldUntilMs - performance.now())
  }

  arrived(index: number, update: Arrived): void {
    this.#calls.set(index, { index, call: update.call })
    if (index > 0) return
    this.head = {
      call: update.call,
      program: update.program,
      model: this.chat.call.model,
      createdSeconds: Math.floor(Date.now() / 1_000),
      includeUsage: this.chat.includeUsage,
    }
    this.reply.headers({
      'x-program-id': update.program,
      'x-program-identity': `${update.identity.source};${update.identity.confidence}`,
    })
  }

  /** True once for each choice: nothing of it was shown before. */
  opens(index: number): boolean {
    const opens = !this.#opened.has(index)
    this.#opened.add(index)
    return opens
  }

  choice(index: number): ReplyChoice {
    return this.#calls.get(index) ?? { index, call: this.head?.call ?? '' }
  }

  /** The ends of all choices in their order, once this is the last of them. */
  done(index: number, update: Done): readonly ReplyEnd[] | null {
    this.#ends.set(index, update)
    if (this.#ends.size < this.chat.choices) return null
    return [...this.#ends].sort(([a], [b]) => a - b).map(([, end]) => end)
  }

  /** Before anything of the answer is sent; what is known of the first choice at its end. */
  sayHow(update: Done): void {
    this.reply.headers({
      'x-program-queue-ms': String(Math.round(update.queuedUs / 1_000)),
      'x-kv-cached-tokens': String(update.cachedTokens),
    })
  }

  /** Null while it may go on. */
  problemOf(step: FeedStep): Problem | null {
    switch (step.kind) {
      case 'update':
        return this.#problemOfUpdate(step)
      case 'still':
        if (this.holdLeftMs > 0) return null
        return problem('queue_timeout', `nothing came for ${Math.round(this.door.limits.queueHoldMs / 1_000)} s`)
      case 'closing':
        return problem('shutting_down')
      case 'broken':
        return problem('internal', step.why)
      case 'gone':
        return null
    }
  }

  #problemOfUpdate({ choice, update }: { readonly choice: number; readonly update: CallUpdate }): Problem | null {
    if (update.kind === 'refused' || update.kind === 'failed') {
      return problemOf(update.code, this.chat.choices > 1 ? `choice ${choice} of ${this.chat.choices}: ${update.why}` : update.why)
    }
    if (update.kind === 'arrived' || this.#calls.has(choice)) return null
    return problem('internal', `"${update.kind}" came before the call had arrived`)
  }
}

/** The longest a timer can be told to wait. */
const WAIT_MS_MAX = 2 ** 31 - 1

/** What we end, the gateway must know; what it ended itself, it knows; and over a restart a call lives on. */
function giveUp(feed: UpdateFeed, step: FeedStep): void {
  if (step.kind === 'still' || step.kind === 'broken') feed.hangUp()
}

async function whole(answer: Answer, feed: UpdateFeed): Promise<unknown> {
  const texts = Array.from({ length: answer.chat.choices }, () => new ReplyText())
  for (;;) {
    const step = await feed.next(Math.min(answer.holdLeftMs, WAIT_MS_MAX))
    const fault = answer.problemOf(step)
    if (fault !== null) {
      giveUp(feed, step)
      return sendProblem(answer.reply, fault)
    }
    // The socket is closed: what is sent reaches nobody, but lets fastify end the request.
    if (step.kind === 'gone') return answer.reply.send()
    if (step.kind !== 'update') continue
    const { choice, update } = step
    if (update.kind === 'arrived') answer.arrived(choice, update)
    if (update.kind === 'part') {
      answer.begun = true
      texts[choice]?.add(update.part)
    }
    if (update.kind !== 'done' || answer.head === null) continue
    answer.begun = true
    if (choice === 0) answer.sayHow(update)
    const ends = answer.done(choice, update)
    if (ends === null) continue
    const choices = ends.map((end, index) => texts[index]?.choice(answer.choice(index), end) ?? {})
    return answer.reply.send(completion(answer.head, choices, ends))
  }
}

async function stream(answer: Answer, feed: UpdateFeed): Promise<unknown> {
  const { door, reply } = answer
  const sse = new SseReply(reply, door.limits)
  for (;;) {
    const step = await feed.next(Math.min(answer.holdLeftMs, door.limits.keepAliveMs))
    const fault = answer.problemOf(step)
    if (fault !== null) {
      giveUp(feed, step)
      if (!sse.isOpen) return sendProblem(reply, fault)
      sse.end(sseData(fault.body))
      return reply
    }
    if (step.kind === 'gone') {
      if (!sse.isOpen) return reply.send()
      sse.end('')
      return reply
    }
    if (step.kind === 'still') await sse.write(SSE_QUEUED)
    else if (step.kind === 'update' && await show(answer, sse, step.choice, step.update)) return reply
  }
}

/** True when that was the last of it. */
async function show(answer: Answer, sse: SseReply, index: number, update: CallUpdate): Promise<boolean> {
  if (update.kind === 'arrived') answer.arrived(index, update)
  const { head } = answer
  if (head === null || (update.kind !== 'part' && update.kind !== 'done')) return false
  const choice = answer.choice(index)
  const role = answer.opens(index) ? sseData(roleChunk(head, choice)) : ''
  answer.begun = true
  if (update.kind === 'part') {
    const before = performance.now()
    await sse.write(role + sseData(partChunk(head, choice, update.part)))
    answer.door.metrics.waitedForReader(performance.now() - before)
    return false
  }
  if (!sse.isOpen && index === 0) answer.sayHow(update)
  const finish = `${role}${sseData(finishChunk(head, choice, update))}`
  const ends = answer.done(index, update)
  if (ends === null) {
    await sse.write(finish)
    return false
  }
  sse.end(`${finish}${head.includeUsage ? sseData(usageChunk(head, ends)) : ''}${SSE_DONE}`)
  return true
}
