/**
 * Owns the program whose resumes are timed: it grows to a wanted context, a quarter of it generated, asks a tool, waits
 * until its State is where it should be, and takes the tool's result. Plain OpenAI HTTP, as any agent.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { chat, type ChatReply, type WireMessage } from '../src/eval/chat-client.ts'
import { Corpus } from '../src/eval/corpus.ts'
import { factsOf } from '../src/eval/program-client.ts'
import { TOOLS, type ToolName } from '../src/eval/tools.ts'
import { answerOf } from './server-process.ts'

const GENERATED_SHARE = 4
/** Eight tokens of the default model. */
const TOOL_RESULT = 'The part is on shelf nine today.'
const CHARACTERS_PER_TOKEN = 4.57
/** System text, tool list and frames of the first prompt. */
const FRAME_TOKENS = 230
/** A request for a tool and the call itself. */
const TOOL_TURN_TOKENS = 45
/** The tool's result in its frame. */
const RESULT_TURN_TOKENS = 37
/** What one repeat adds: result, answer, the next request and call. */
const REPEAT_TOKENS = 85
const TURNS_MAX = 40
const TOOL_CALL_TOKENS_MAX = 96
const ANSWER_TOKENS = 4
const REST_MS_MAX = 60_000
const POLL_MS = 20

export interface Resumed {
  readonly firstTokenMs: number
  /** Of the tokens that are new in every way: the tool's result and its frame. */
  readonly prefillMs: number
  readonly contextTokens: number
  readonly cachedTokens: number
}

interface Place { readonly url: string; readonly model: string; readonly id: string; readonly signal: AbortSignal }

interface StateShown { readonly residence: string; readonly tier: string | null }

export class ResumeProgram {
  readonly #place: Place
  readonly #messages: WireMessage[] = []
  #contextTokens = 0
  #toolCall = ''

  constructor(place: Place) {
    this.#place = place
  }

  /** Ends with a tool call open. The context is a little below `tokens`, so that it is right in the middle of `repeats`. */
  async build(tokens: number, repeats: number): Promise<{ readonly contextTokens: number; readonly generatedTokens: number }> {
    const first = tokens - Math.round(REPEAT_TOKENS * (repeats - 1) / 2) - TOOL_TURN_TOKENS - RESULT_TURN_TOKENS
    const wanted = Math.round(tokens / GENERATED_SHARE)
    const notes = Corpus.load().passages.map(({ title, text }) => `${title}: ${text}`).join('\n')
    const characters = Math.round((first - wanted - FRAME_TOKENS) * CHARACTERS_PER_TOKEN)
    this.#messages.push(
      { role: 'system', content: 'You write long, plain reports.' },
      { role: 'user', content: `Write a long report about these notes.\n${notes.repeat(1 + Math.floor(characters / notes.length)).slice(0, characters)}` },
    )
    let generated = 0
    for (let turn = 0; turn < TURNS_MAX && generated < wanted; turn += 1) {
      const reply = await this.#ask('none', wanted - generated)
      generated += reply.outputTokens
      this.#messages.push({ role: 'assistant', content: reply.text }, { role: 'user', content: 'Go on.' })
    }
    this.#messages.pop()
    await this.askTool()
    return { contextTokens: this.#contextTokens, generatedTokens: generated }
  }

  async askTool(): Promise<void> {
    this.#messages.push({ role: 'user', content: 'Look up part P-101.' })
    const reply = await this.#ask('lookup', TOOL_CALL_TOKENS_MAX)
    const [call] = reply.toolCalls
    if (call === undefined) throw new Error(`the forced call did not call its tool: it ended with ${reply.finish}`)
    this.#toolCall = call.id
    this.#messages.push({ role: 'assistant', content: reply.text === '' ? null : reply.text, tool_calls: reply.toolCalls })
  }

  /** Until the State waits where it should. */
  async rest(where: 'device' | 'host' | 'gone'): Promise<void> {
    const until = performance.now() + REST_MS_MAX
    let shown = ''
    while (performance.now() < until) {
      const program = await answerOf(`${this.#place.url}/v1/programs/${this.#place.id}`) as { readonly states: readonly StateShown[] } | null
      const states = program?.states ?? []
      shown = states.map(({ residence, tier }) => `${residence} ${tier ?? ''}`).join(', ')
      if (states.length > 0 && states.every((state) => restsAt(state) === where)) return
      await sleep(POLL_MS, undefined, { signal: this.#place.signal })
    }
    throw new Error(`the State did not come to rest at ${where} within ${REST_MS_MAX / 1_000} s: ${shown}`)
  }

  async answerTool(): Promise<Resumed> {
    this.#messages.push({ role: 'tool', tool_call_id: this.#toolCall, content: TOOL_RESULT })
    const reply = await this.#ask('none', ANSWER_TOKENS)
    this.#messages.push({ role: 'assistant', content: reply.text })
    return {
      firstTokenMs: reply.firstTokenMs ?? reply.totalMs,
      prefillMs: await this.#prefillMs(),
      contextTokens: reply.promptTokens,
      cachedTokens: reply.cachedTokens,
    }
  }

  async finish(): Promise<void> {
    await fetch(`${this.#place.url}/v1/programs/${this.#place.id}/finish`, { method: 'POST', signal: this.#place.signal })
  }

  async #ask(tool: ToolName | 'none', maxTokens: number): Promise<ChatReply> {
    const { url, model, id, signal } = this.#place
    const reply = await chat({ url, headers: { 'x-program-id': id } }, {
      model, messages: this.#messages, tools: [TOOLS.lookup], toolChoice: tool, maxTokens, temperature: 0, seed: 1,
    }, signal)
    this.#contextTokens = reply.promptTokens + reply.outputTokens
    return reply
  }

  /** Of the program's last call, as its facts have it. */
  async #prefillMs(): Promise<number> {
    const facts = await factsOf({ url: this.#place.url, headers: {} }, this.#place.id)
    const last = facts.map(({ fact }) => fact).findLast((fact) => fact.kind === 'call.completed')
    return last?.kind === 'call.completed' ? last.parts.prefillUs / 1_000 : 0
  }
}

const restsAt = ({ residence, tier }: StateShown): string => (residence === 'suspended' ? tier ?? '' : residence)
