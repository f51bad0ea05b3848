/** Owns reading a call whose name is known and whose arguments follow as one JSON object. */
import { JsonScanner } from '../json-scanner.ts'
import { NotACall } from './format.ts'
import type { Reading, Section } from './format.ts'

export function* readJsonObject(section: Section, name: string): Reading {
  const scanner = new JsonScanner()
  let text = ''
  for (;;) {
    const unit = yield* section.peek()
    const state = unit === '' ? 'bad' : scanner.push(unit)
    if (state === 'bad') throw new NotACall()
    if (text === '' && section.streamed) section.begin(name)
    text += unit
    if (section.streamed) section.add(unit)
    section.take()
    if (state === 'done') break
  }
  if (section.streamed) return
  section.begin(name)
  section.add(text)
}
