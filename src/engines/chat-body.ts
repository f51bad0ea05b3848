/**
 * Owns reading a call's body back: the validated chat call as JSON. Its text comes from our own door, so only its frame
 * is checked.
 */
import type { ChatCall } from '../protocol/chat.ts'

/** Null where the text is no chat call. */
export function readChatCall(body: string): ChatCall | null {
  try {
    const call = JSON.parse(body) as Partial<ChatCall> | null
    return Array.isArray(call?.messages) && call.messages.length > 0 ? call as ChatCall : null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

/** What a tokenizer we do not have would say, roughly: four characters a token. */
export const estimateTokens = (body: string): number => Math.max(1, Math.ceil(body.length / 4))
