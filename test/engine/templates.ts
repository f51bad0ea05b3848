/** Chat templates for tests: what kinds there are, in a few lines each. */
import { ChatTemplate } from '../../src/engine/template.ts'

const AGAIN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"

/** Any role, no tools; a system text of its own where none is given. The default model's. */
export const CHATML = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
  + "{{ '<|im_start|>system\\nBe kind<|im_end|>\\n' }}{% endif %}"
  + `{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}${AGAIN}`

/** Knows tools, in the Hermes form; `writes` is how it writes the arguments. */
const hermes = (writes: string): string => "{%- if tools %}{{- '<|im_start|>system\\n' }}"
  + "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}{{- '<tools>' }}"
  + '{%- for tool in tools %}{{- "\\n" + (tool | tojson) }}{%- endfor %}{{- "\\n</tools><|im_end|>\\n" }}'
  + "{%- elif messages[0].role == 'system' %}"
  + "{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}"
  + "{%- for message in messages %}{%- if message.role == 'tool' %}"
  + "{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}"
  + "{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant' }}"
  + "{%- if message.content %}{{- '\\n' + message.content }}{%- endif %}"
  + '{%- for call in (message.tool_calls if message.tool_calls else []) %}'
  + "{{- '\\n<tool_call>\\n{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}"
  + `${writes}{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}`
  + "{%- elif message.role == 'user' %}{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}"
  + '{%- endif %}{%- endfor %}' + AGAIN

export const HERMES_JSON = hermes('{{- call.function.arguments | tojson }}')
export const HERMES_TEXT = hermes('{%- if call.function.arguments is string %}{{- call.function.arguments }}'
  + "{%- else %}{{- raise_exception('text wanted') }}{%- endif %}")
export const HERMES_OBJECT = hermes('{%- if call.function.arguments is mapping %}'
  + '{{- call.function.arguments | tojson }}'
  + "{%- else %}{{- raise_exception('an object wanted') }}{%- endif %}")

/** No system turn, strict turns, and it trims what it is given. */
export const STRICT = "{% for message in messages %}{% if message['role'] == 'system' %}"
  + "{{ raise_exception('System role not supported') }}{% endif %}"
  + "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
  + "{{ raise_exception('Turns must alternate') }}{% endif %}"
  + `{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] | trim) + '<|im_end|>\\n' }}{% endfor %}${AGAIN}`

/** Drops the reasoning of earlier turns, as templates of reasoning models do. */
export const FORGETFUL = "{% for message in messages %}{% set content = message['content'] %}"
  + "{% if message['role'] == 'assistant' and not loop.last and '</think>' in content %}"
  + "{% set content = content.split('</think>')[-1] %}{% endif %}"
  + `{{ '<|im_start|>' + message['role'] + '\\n' + content + '<|im_end|>\\n' }}{% endfor %}${AGAIN}`

export const compile = (source: string, addBos = false): ChatTemplate =>
  ChatTemplate.compile({ source, bosText: addBos ? '<|x|>' : '', eosText: '<|im_end|>', addBos })
