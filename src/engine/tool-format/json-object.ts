/** Owns reading a call whose name is known and whose arguments follow as one JSON object. */
import { JsonScanner } from '../json-scanner.ts'
import { NotACall } from './format.ts'
import type { Reading, Section } from './format.ts'

export function* readJsonObject(section: Section, name: string): Reading {
  const scanner = new JsonScanner()
  for (let state = scanner.state, begun = false; state === 'open'; begun = true) {
    const unit = yield* section.peek()
    state = unit === '' ? 'bad' : scanner.push(unit)
    if (state === 'bad') throw new NotACall()
    section.take()
    if (!begun) section.begin(name)
    section.add(unit)
  }
  section.done()
}
