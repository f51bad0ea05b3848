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

/** The turns of a template that writes tools and results as JSON; `calls` is how it writes those of a message. */
const native = (calls: string, before = ''): string => "{{ bos_token }}{% if tools %}{{ '<|im_start|>system\\n' + (tools | tojson) + '<|im_end|>\\n' }}{% endif %}"
  + "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' }}"
  + "{% if message.role == 'assistant' and message.reasoning_content and loop.index0 + 3 > messages | length %}"
  + "{{ '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{% endif %}{{ message.content }}"
  + `{% if message.tool_calls %}${calls}{% endif %}{{ '<|im_end|>\\n' }}{% endfor %}`
  + `{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n${before}' }}{% endif %}`

/** Wants ids of nine characters, as Mistral's does. */
export const NAMED_CALLS = native('{% for call in message.tool_calls %}{% if call.id | length != 9 %}'
  + "{{ raise_exception('ids have nine characters') }}{% endif %}"
  + "{{ '[TOOL_CALLS]' + call.function.name + '[ARGS]' + (call.function.arguments | tojson) }}{% endfor %}")

/** One call a message, bare, as Llama's does. */
export const BARE_CALL = native('{% if message.tool_calls | length != 1 %}'
  + "{{ raise_exception('one call a message') }}{% endif %}{% set call = message.tool_calls[0].function %}"
  + "{{ '{\"name\": \"' + call.name + '\", \"parameters\": ' + (call.arguments | tojson) + '}' }}")

/** Each value on its own, as Qwen3-Coder's does; the model thinks first, and may not choose. */
export const VALUES = native("{% for call in message.tool_calls %}{{ '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}"
  + "{% for key, value in call.function.arguments | items %}{{ '<parameter=' + key + '>\\n' + "
  + "(value if value is string else value | tojson) + '\\n</parameter>\\n' }}{% endfor %}"
  + "{{ '</function>\\n</tool_call>' }}{% endfor %}", '<think>\\n')

/** Writes tools and results, and says in its text how to call them, but writes no calls, as Granite 3's does. */
export const TOLD_CALLS = native('').replace('(tools | tojson)', "'Call with <|tool_call|> and a list: ' + (tools | tojson)")
