/**
 * Owns the border between bytes and characters. A character is given out when its last byte is there, never in parts;
 * bytes that can be no part of a character become U+FFFD, one for each maximal part, as the WHATWG decoder has it. What
 * comes out in all is the same however the bytes are cut.
 */
const BYTES_MAX = 4
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export class Utf8Decoder {
  #held: Uint8Array = new Uint8Array(0)

  /** Nothing is held: the bytes so far end with a character. */
  get clean(): boolean {
    return this.#held.length === 0
  }

  push(bytes: Uint8Array): string {
    if (bytes.length === 0) return ''
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes])
    const whole = all.length - unfinishedBytes(all)
    this.#held = all.slice(whole)
    return UTF8.decode(all.subarray(0, whole))
  }

  /** What is held will not be finished. */
  end(): string {
    const rest = UTF8.decode(this.#held)
    this.#held = new Uint8Array(0)
    return rest
  }
}

/** How many bytes at the end begin a character that more bytes could finish. */
function unfinishedBytes(bytes: Uint8Array): number {
  for (let back = 1; back < BYTES_MAX && back <= bytes.length; back++) {
    const lead = bytes[bytes.length - back] ?? 0
    if (lead < 0x80) return 0
    if (lead < 0xc0) continue
    return back < lengthOf(lead) && secondFits(lead, bytes[bytes.length - back + 1]) ? back : 0
  }
  return 0
}

/** Bytes of the character that `lead` begins; 1 where it begins none. */
function lengthOf(lead: number): number {
  if (lead < 0xc2 || lead > 0xf4) return 1
  if (lead < 0xe0) return 2
  return lead < 0xf0 ? 3 : 4
}

/** No overlong forms, no surrogates, nothing over U+10FFFF: all three show in the second byte. */
function secondFits(lead: number, second: number | undefined): boolean {
  if (second === undefined) return true
  const low = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80
  const high = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf
  return low <= second && second <= high
}
