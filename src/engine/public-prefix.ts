/**
 * Owns what an operator makes public by naming a system text: the tokens that prompts with it have in common, whatever
 * their user says. Found by asking the template, so that whatever it writes around the text is in it, and nothing behind it.
 */
import { measure } from './measure.ts'
import { SettingsError } from './settings.ts'
import type { ChatTemplate } from './template.ts'
import type { Tokenizer } from './token-record.ts'

/** Two that begin with nothing in common. */
const USERS = ['A', 'z'] as const

/** Throws SettingsError where no prompt of this model can begin so. */
export function publicPrefix(tokenizer: Tokenizer, template: ChatTemplate, system: string, contextTokens: number): Int32Array {
  const [one = new Int32Array(0), other = one] = USERS.map((user) => promptOf(tokenizer, template, system, user, contextTokens))
  return one.subarray(0, commonTokens(one, other))
}

/** Leading tokens that both have. */
export function commonTokens(one: Int32Array, other: Int32Array): number {
  const most = Math.min(one.length, other.length)
  let count = 0
  while (count < most && one[count] === other[count]) count++
  return count
}

function promptOf(tokenizer: Tokenizer, template: ChatTemplate, system: string, user: string, contextTokens: number): Int32Array {
  const messages = [{ role: 'system', content: system }, { role: 'user', content: user }]
  const body = JSON.stringify({
    model: '', messages: messages.map((message) => ({ ...message, toolCalls: [], toolCallId: null })), tools: [], toolChoice: 'none',
    sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: null,
  })
  const measured = measure(tokenizer, template, body, [], { contextTokens, vocabulary: '' })
  if (measured.ok) return measured.prepared.tokens
  throw new SettingsError(`the public prefix ${JSON.stringify(system.slice(0, 40))} begins no prompt of this model: ${measured.why}`)
}
