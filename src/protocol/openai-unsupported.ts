/**
 * Owns the fields of a chat completion request that would change the result and are not supported yet: each is refused
 * by name, unless its value asks for what happens anyway. A field in neither list is unknown to us and is tolerated.
 */

type Harmless = (value: unknown) => boolean

const never: Harmless = () => false
const off: Harmless = (value) => value === false || value === 0
const zero: Harmless = (value) => value === 0
const one: Harmless = (value) => value === 1
const empty: Harmless = (value) => typeof value === 'object' && value !== null && Object.keys(value).length === 0
const textOnly: Harmless = (value) => Array.isArray(value) && value.every((item) => item === 'text')

/** Null and absent are harmless for every field. */
const UNSUPPORTED: Readonly<Record<string, Harmless>> = {
  best_of: one,
  prompt_logprobs: off,
  repeat_penalty: one,
  length_penalty: one,
  audio: never,
  modalities: textOnly,
  prediction: never,
  web_search_options: never,
  functions: empty,
  function_call: (value) => value === 'none' || value === 'auto',
  moderation: never,
  // What other engines add and clients send through.
  guided_json: never,
  guided_regex: never,
  guided_choice: never,
  guided_grammar: never,
  structured_outputs: never,
  json_schema: never,
  use_beam_search: off,
  bad_words: empty,
  echo: off,
  continue_final_message: off,
  add_generation_prompt: (value) => value === true,
  chat_template: never,
  chat_template_kwargs: empty,
  typical_p: one,
  mirostat: zero,
  xtc_probability: zero,
  dry_multiplier: zero,
}

/** Names the fields that must be refused, in the order in which the client wrote them. */
export function unsupportedFields(body: Readonly<Record<string, unknown>>): readonly string[] {
  return Object.entries(body)
    .filter(([name, value]) => {
      const harmless = Object.hasOwn(UNSUPPORTED, name) ? UNSUPPORTED[name] : undefined
      return harmless !== undefined && value !== null && value !== undefined && !harmless(value)
    })
    .map(([name]) => name)
}
