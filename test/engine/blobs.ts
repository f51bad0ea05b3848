/** Owns made-up sequence states for tests: written field by field here, so that they do not lean on what they test. */

export interface MadeBlob {
  readonly tokens: number
  readonly layers: number
  readonly keyBytes: number
  /** Elements of V a token. */
  readonly valueWidth: number
  readonly transposed: boolean
  readonly streams: number
  /** The stream that holds the cells. */
  readonly stream: number
}

/** Bytes of K or V are a function of plane, token and place alone, so any two blobs agree where they say the same. */
const datum = (plane: number, token: number, at: number): number => (plane * 97 + token * 31 + at * 7 + 13) % 251

export function makeBlob(made: MadeBlob): Buffer {
  const out: number[] = []
  const u32 = (value: number): void => { out.push(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24) }
  u32(0xaf143cd8)
  u32(made.stream)
  u32(made.streams)
  for (let stream = 0; stream < made.streams; stream++) {
    u32(stream === made.stream ? made.tokens : 0)
    if (stream === made.stream) {
      for (let token = 0; token < made.tokens; token++) for (const value of [token, 1, made.stream]) u32(value)
      u32(made.transposed ? 1 : 0)
      u32(made.layers)
      planes(made, u32, out)
    }
  }
  return Buffer.from(out)
}

function planes(made: MadeBlob, u32: (value: number) => void, out: number[]): void {
  for (let layer = 0; layer < made.layers; layer++) {
    for (const value of [1, made.keyBytes, 0]) u32(value)
    for (let token = 0; token < made.tokens; token++) {
      for (let at = 0; at < made.keyBytes; at++) out.push(datum(layer, token, at))
    }
  }
  for (let layer = 0; layer < made.layers; layer++) {
    const plane = made.layers + layer
    const bytes = made.valueWidth * 2
    for (const value of made.transposed ? [1, 2, made.valueWidth] : [1, bytes, 0]) u32(value)
    if (made.transposed) {
      for (let row = 0; row < made.valueWidth; row++) {
        for (let token = 0; token < made.tokens; token++) {
          out.push(datum(plane, token, row * 2), datum(plane, token, row * 2 + 1))
        }
      }
    } else {
      for (let token = 0; token < made.tokens; token++) {
        for (let at = 0; at < bytes; at++) out.push(datum(plane, token, at))
      }
    }
  }
}
