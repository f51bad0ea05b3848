/**
 * Owns the forms that invoke by name and parameter:
 *
 *   <minimax:tool_call>\n<invoke name="x">\n<parameter name="city">Ulm</parameter>\n</invoke>\n</minimax:tool_call>
 *   <｜DSML｜tool_calls>\n<｜DSML｜invoke name="x">\n<｜DSML｜parameter name="city" string="true">Ulm</｜DSML｜parameter>...
 */
import { NAME_CHARS_MAX, NotACall } from './format.ts'
import type { Reading, Section, ToolFormat } from './format.ts'
import { ValueArguments } from './values.ts'

/** `prefix` stands before each tag's name. */
const form = (name: string, sections: readonly string[], prefix: string): ToolFormat => ({
  name,
  opens: sections.map((section) => `<${section}>`),
  bare: '',
  lead: '\n',
  tags: [...sections.map((section) => `</${section}>`), '｜DSML｜'],
  writing: null,
  values: {
    head: (called) => `<${sections[0] ?? ''}>\n<${prefix}invoke name="${called}">\n`,
    open: (key, isText) => `<${prefix}parameter name="${key}"${prefix === '' ? '' : ` string="${isText}"`}>`,
    close: `</${prefix}parameter>\n`, tail: `</${prefix}invoke>\n</${sections[0] ?? ''}>`, mark: `</${prefix}parameter>`,
  },
  *read(open, section) {
    yield* section.space()
    yield* section.must(`<${prefix}invoke name="`)
    for (;;) {
      yield* readInvoke(section, prefix)
      yield* section.space()
      if (!(yield* section.found(`<${prefix}invoke name="`))) break
    }
    yield* section.close(open.replace('<', '</'))
  },
})

/** From the name on. */
function* readInvoke(section: Section, prefix: string): Reading {
  const name = (yield* section.until(['">'], NAME_CHARS_MAX)).text
  if (name === '') throw new NotACall()
  const given = new ValueArguments(section, name)
  for (;;) {
    yield* section.space()
    if (!(yield* section.found(`<${prefix}parameter name="`))) break
    const key = (yield* section.until(['"'], NAME_CHARS_MAX)).text
    const said = (yield* section.until(['>'], NAME_CHARS_MAX)).text
    const isText = said.includes('string="true"') || (said.includes('string="false"') ? false : null)
    yield* given.read(key, `</${prefix}parameter>`, isText)
  }
  yield* section.must(`</${prefix}invoke>`)
  given.end()
}

export const invoke: readonly ToolFormat[] = [
  form('minimax', ['minimax:tool_call'], ''),
  form('dsml', ['｜DSML｜function_calls', '｜DSML｜tool_calls'], '｜DSML｜'),
]
