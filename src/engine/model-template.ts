/** Owns which chat template a model has: the one in its file, or ChatML where it has none. */
import type { Llama } from './llama/llama.ts'
import { ChatTemplate } from './template.ts'

const CHATML = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] "
  + "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

export function templateOf(llama: Llama): ChatTemplate {
  const { chatTemplate, bos, eos, vocabSize } = llama.info
  const spell = (token: number): string =>
    token >= 0 && token < vocabSize ? Buffer.from(llama.piece(token, true)).toString('utf8') : ''
  // Templates of models that want a beginning token write it themselves.
  const source = chatTemplate ?? CHATML
  return ChatTemplate.compile({ source, bosText: spell(bos), eosText: spell(eos), addBos: false })
}
