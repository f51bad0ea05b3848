/** Owns the tools that simulated models call: their names, what they do to the world, and the ids of their calls. */
import type { Effect } from '../core/effect.ts'

export const TOOLS = ['search', 'search', 'save', 'pay', 'person'] as const
export type Tool = (typeof TOOLS)[number]

/** For the configuration, which knows them by name. */
export const TOOL_EFFECTS: Readonly<Record<string, Effect>> = { save: 'idempotent', pay: 'irreversible' }
export const HUMAN_TOOLS: readonly Tool[] = ['person']

export const hasEffect = (tool: Tool): boolean => TOOL_EFFECTS[tool] !== undefined

export const toolCallOf = (call: string): string => `tool_${call}`
