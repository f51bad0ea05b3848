/**
 * Owns reading one call that is a JSON object with its name and its arguments, and lists of such calls. The arguments
 * are told as they were written.
 */
import { JsonScanner } from '../json-scanner.ts'
import type { Member } from '../json-scanner.ts'
import { NotACall } from './format.ts'
import type { Reading, Section } from './format.ts'

export interface JsonKeys {
  readonly name: string
  /** Any of them; one call has one. */
  readonly arguments: readonly string[]
  /** Null: other members may stand beside them. */
  readonly others: readonly string[] | null
  /** The name is one of the tools offered: for forms that nothing else tells from an answer in JSON. */
  readonly offered: boolean
}

/** An object with one `name` and one object of arguments, in any order. */
export function* readJsonCall(section: Section, keys: JsonKeys): Reading {
  const call = new JsonCall(section, keys)
  for (;;) {
    const unit = yield* section.peek()
    if (call.take(unit)) return
  }
}

/** Calls with commas between them, after `[`, up to the `]` that ends them. */
export function* readJsonList(section: Section, keys: JsonKeys): Reading {
  for (;;) {
    yield* section.space()
    yield* readJsonCall(section, keys)
    yield* section.space()
    if ((yield* section.peek()) !== ',') return yield* section.close(']')
    section.take()
  }
}

/** Beside its name and its arguments a call has few; each character is looked at for all of them. */
const MEMBERS_MAX = 32

class JsonCall {
  readonly #section: Section
  readonly #keys: JsonKeys
  readonly #scanner = new JsonScanner()
  #text = ''
  /** Characters of the arguments that were told; null before the name was. */
  #told: number | null = null
  #members = 0

  constructor(section: Section, keys: JsonKeys) {
    this.#section = section
    this.#keys = keys
  }

  /** True where the object is complete. */
  take(unit: string): boolean {
    const state = unit === '' ? 'bad' : this.#scanner.push(unit)
    if (state === 'bad') throw new NotACall()
    this.#text += unit
    if (this.#scanner.members.length > this.#members) this.#beginMember()
    if (state === 'done') this.#check()
    this.#section.take()
    this.#tell()
    if (state === 'done') this.#section.done()
    return state === 'done'
  }

  #beginMember(): void {
    this.#members = this.#scanner.members.length
    if (this.#members > MEMBERS_MAX) throw new NotACall()
    const { name, arguments: given, others } = this.#keys
    const last = this.#scanner.members.at(-1)
    if (others === null || last === undefined) return
    const key = this.#key(last)
    if (![name, ...given, ...others].includes(key)) throw new NotACall()
  }

  /** It is an object; is it a call? */
  #check(): void {
    if (this.#name() === null || this.#arguments()?.valueEnd === null || this.#arguments() === null) throw new NotACall()
  }

  /** What came of the arguments, once the name is known. */
  #tell(): void {
    const given = this.#arguments()
    if (given === null) return
    const told = this.#told ?? 0
    const added = this.#text.slice(given.valueBegin + told, given.valueEnd ?? undefined)
    if (this.#told === null) {
      const name = this.#name()
      if (name === null) return
      this.#section.begin(name)
    }
    this.#section.add(added)
    this.#told = told + added.length
  }

  #name(): string | null {
    const [member, ...more] = this.#named((key) => key === this.#keys.name)
    if (member === undefined || member.valueEnd === null || more.length > 0) return null
    const name: unknown = JSON.parse(this.#text.slice(member.valueBegin, member.valueEnd))
    if (typeof name !== 'string' || name === '') return null
    return !this.#keys.offered || this.#section.tools.some((tool) => tool.name === name) ? name : null
  }

  #arguments(): Member | null {
    const [member, ...more] = this.#named((key) => this.#keys.arguments.includes(key))
    if (member === undefined || more.length > 0 || this.#text.charAt(member.valueBegin) !== '{') return null
    return member
  }

  #named(wanted: (key: string) => boolean): Member[] {
    return this.#scanner.members.filter((member) => wanted(this.#key(member)))
  }

  /** As written, without its quotes. */
  #key(member: Member): string {
    return this.#text.slice(member.keyBegin + 1, member.keyEnd - 1)
  }
}
