/**
 * Owns one agent: a declared program that calls the model, runs the tool it asked for, appends the result, and calls
 * again until its answer. It speaks plain OpenAI HTTP and knows nothing of what is behind it. Each call but the last is
 * made to call a stated tool, since a model this small would not do it by itself.
 */
import { createHash } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { AgentStep, AgentWorld, CallRecord, ProgramRecord } from './agent-record.ts'
import { chat, ChatError, type ChatReply, type WireMessage } from './chat-client.ts'
import type { PlannedCall, PlannedProgram } from './mix.ts'
import { cancelProgram, declareProgram, reasonOf } from './program-client.ts'
import { firstPrompt, resultCharacters } from './task.ts'
import type { ToolName, ToolSchema } from './tools.ts'

/** Room for a forced call: its frame and the longest argument a tool takes, if every character were a token. */
const TOOL_CALL_TOKENS_MAX = 96

interface AgentJob {
  readonly id: string
  readonly program: PlannedProgram
  readonly waitsMs: readonly number[]
  readonly seed: number
}

export async function runAgent(job: AgentJob, world: AgentWorld): Promise<ProgramRecord> {
  const startMs = world.now()
  const calls: CallRecord[] = []
  const hash = createHash('sha256')
  const step = (kind: AgentStep['kind'], tool: ToolName | null): void =>
    world.notify({ program: job.program.name, kind, call: calls.length, calls: job.program.calls.length, tool })
  let error: string | null = null
  try {
    await declareProgram(world.endpoint, { id: job.id, agent: job.program.kind }, world.signal)
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
    await cancelProgram(world.endpoint, job.id)
  }
  step(error === null ? 'done' : 'failed', null)
  return {
    id: job.id, name: job.program.name, startMs, endMs: world.now(), calls, error, graph: null,
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
