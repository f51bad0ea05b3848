/**
 * Owns one agent: a declared program that calls the model, runs the tool it asked for, appends the result, and calls
 * again until its answer. It speaks plain OpenAI HTTP and knows nothing of what is behind it. Each call but the last is
 * made to call a stated tool, since a model this small would not do it by itself.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { chat, ChatError, type ChatReply, type Endpoint, type WireMessage } from './chat-client.ts'
import type { Corpus } from './corpus.ts'
import type { PlannedCall, PlannedProgram } from './mix.ts'
import { firstPrompt, resultCharacters } from './task.ts'
import type { Toolbox, ToolName, ToolSchema } from './tools.ts'

/** Room for a forced call: its frame and the longest argument a tool takes, if every character were a token. */
const TOOL_CALL_TOKENS_MAX = 96
/** For what is not on the server yet when its last answer is here; beyond it the server is not well. */
const CANCEL_MS_MAX = 5_000

export interface AgentWorld {
  readonly endpoint: Endpoint
  readonly model: string
  /** The model's tokens for one of the default's. */
  readonly tokenScale: number
  readonly toolbox: Toolbox
  readonly corpus: Corpus
  /** Milliseconds since the run began. */
  now(): number
  /** Where an agent is, as it goes. */
  notify(step: AgentStep): void
  readonly signal: AbortSignal
}

export interface AgentStep {
  readonly program: string
  readonly kind: 'asking' | 'tool' | 'done' | 'failed'
  /** The call it is at, from 0. */
  readonly call: number
  readonly calls: number
  readonly tool: ToolName | null
}

interface AgentJob {
  readonly id: string
  readonly program: PlannedProgram
  readonly waitsMs: readonly number[]
  readonly seed: number
}

interface CallRecord {
  readonly startMs: number
  readonly endMs: number
  readonly firstTokenMs: number | null
  readonly promptTokens: number
  readonly cachedTokens: number
  readonly outputTokens: number
  readonly finish: string | null
  readonly tool: ToolName | null
}

export interface ProgramRecord {
  readonly id: string
  readonly name: string
  readonly startMs: number
  readonly endMs: number
  readonly waitsMs: number
  readonly calls: readonly CallRecord[]
  /** Of everything the model wrote, so that two runs can be compared. */
  readonly digest: string
  readonly error: string | null
}

export async function runAgent(job: AgentJob, world: AgentWorld): Promise<ProgramRecord> {
  const startMs = world.now()
  const calls: CallRecord[] = []
  const hash = createHash('sha256')
  const step = (kind: AgentStep['kind'], tool: ToolName | null): void =>
    world.notify({ program: job.program.name, kind, call: calls.length, calls: job.program.calls.length, tool })
  let error: string | null = null
  try {
    await declare(job, world)
    const { messages: first, tools } = firstPrompt(job.program, world.corpus)
    const messages: WireMessage[] = [...first]
    for (const [index, planned] of job.program.calls.entries()) {
      step('asking', planned.tool)
      const reply = await ask(job, world, { planned, messages, tools, final: index === job.program.calls.length - 1 }, calls)
      hash.update(JSON.stringify([reply.text, reply.toolCalls.map((call) => call.function)]))
      if (planned.tool === null) break
      step('tool', planned.tool)
      messages.push(...await answerTools(job, world, { index, tool: planned.tool, reply }))
    }
  } catch (fault) {
    if (world.signal.aborted) throw fault
    error = reasonOf(fault)
    await cancel(job, world)
  }
  step(error === null ? 'done' : 'failed', null)
  return {
    id: job.id, name: job.program.name, startMs, endMs: world.now(), calls, error,
    waitsMs: job.waitsMs.reduce((sum, wait) => sum + wait, 0), digest: hash.digest('hex').slice(0, 16),
  }
}

interface Turn {
  readonly planned: PlannedCall
  readonly messages: readonly WireMessage[]
  readonly tools: readonly ToolSchema[]
  readonly final: boolean
}

async function ask(job: AgentJob, world: AgentWorld, turn: Turn, calls: CallRecord[]): Promise<ChatReply> {
  const headers = {
    ...world.endpoint.headers,
    'x-program-id': job.id,
    'x-program-agent': job.program.kind,
    ...(turn.final ? { 'x-program-final': 'true' } : {}),
  }
  const { tool, outputTokens } = turn.planned
  const startMs = world.now()
  const reply = await chat({ url: world.endpoint.url, headers }, {
    model: world.model, messages: turn.messages, tools: turn.tools, toolChoice: tool ?? 'none',
    maxTokens: (tool === null ? outputTokens : TOOL_CALL_TOKENS_MAX) * world.tokenScale, temperature: 0, seed: job.seed,
  }, world.signal)
  const { firstTokenMs, promptTokens, cachedTokens, outputTokens: written, finish } = reply
  calls.push({ startMs, endMs: world.now(), firstTokenMs, promptTokens, cachedTokens, outputTokens: written, finish, tool })
  if (tool !== null && reply.finish !== 'tool_calls') throw new ChatError(`a call made to use ${tool} ended with ${reply.finish}`)
  return reply
}

/** The tools do their work, and the answer is there once the drawn time has passed. */
async function answerTools(
  job: AgentJob, world: AgentWorld, { index, tool, reply }: { index: number; tool: ToolName; reply: ChatReply },
): Promise<readonly WireMessage[]> {
  const newTokens = job.program.calls[index + 1]?.newTokens ?? 0
  const characters = Math.round(resultCharacters(tool, newTokens) / Math.max(1, reply.toolCalls.length))
  const results = reply.toolCalls.map((call): WireMessage => ({
    role: 'tool', tool_call_id: call.id, content: world.toolbox.run(tool, call.function.arguments, characters),
  }))
  await sleep(job.waitsMs[index] ?? 0, undefined, { signal: world.signal })
  return [{ role: 'assistant', content: reply.text === '' ? null : reply.text, tool_calls: reply.toolCalls }, ...results]
}

async function declare(job: AgentJob, world: AgentWorld): Promise<void> {
  const response = await fetch(`${world.endpoint.url}/v1/programs`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...world.endpoint.headers },
    body: JSON.stringify({ id: job.id, agent: job.program.kind }),
    signal: world.signal,
  })
  const text = await response.text()
  if (!response.ok) throw new ChatError(`declaring ${job.id}: HTTP ${response.status}: ${text}`)
}

/** A program that failed holds memory that others wait for. That it cannot be cancelled either is no news worth more. */
async function cancel(job: AgentJob, world: AgentWorld): Promise<void> {
  const request = { method: 'DELETE', headers: world.endpoint.headers, signal: AbortSignal.timeout(CANCEL_MS_MAX) }
  await Promise.allSettled([fetch(`${world.endpoint.url}/v1/programs/${encodeURIComponent(job.id)}`, request)])
}

/** `fetch` hides what happened in the cause. */
function reasonOf(fault: unknown): string {
  if (!(fault instanceof Error)) return String(fault)
  return fault.cause instanceof Error ? `${fault.message}: ${fault.cause.message}` : fault.message
}
