/** Owns which templates of `test-templates.ts` do not hold, each with its measured cause. */

const ELSE = 'the calls are asked for in the Hermes form'

export const KNOWN: ReadonlyMap<string, string> = new Map([
  ['ByteDance-Seed-OSS', 'an object with whole numbers as keys, which the template engine does not read'],
  ['CohereForAI-c4ai-command-r-plus-tool_use', `a fenced block after "Action:" with an action for every turn; ${ELSE}`],
  ['GigaChat3-10B-A1.8B', `a call is a turn of its own with the role "function call"; ${ELSE}`],
  ['Kimi-K2-Instruct', `list.pop, which the template engine does not have, where results follow; ${ELSE}`],
  ['Kimi-K2-Thinking', `list.pop, which the template engine does not have, where results follow; ${ELSE}`],
  ['Kimi-K3', `calls and answer in <|open|>...<|sep|> blocks; ${ELSE}`],
  ['MiniMax-M3', `a tag for each parameter, every tag behind a mark of its own; ${ELSE}`],
  ['fireworks-ai-llama-3-firefunction-v2', 'it adds a variable "datetime" to its text, which nobody gives it'],
  ['muse-glimmer', `calls in messages addressed to a tool; ${ELSE}`],
  ['openbmb-MiniCPM5-1B', `the filter "min", which the template engine does not have; ${ELSE}`],
  ['tencent-Hy3', 'str.format, which the template engine does not have'],
])
