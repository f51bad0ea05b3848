/** Owns one sum: the CRC32 of two pieces of bytes one after another, from the CRC32 of each and the second's length. */

const POLYNOMIAL = 0xedb88320

/** Product of two polynomials over GF(2), modulo CRC32's, bits reversed. */
function multiply(a: number, b: number): number {
  let left = a
  let right = b
  let product = 0
  for (let bit = 0; bit < 32; bit++) {
    if ((left & 0x80000000) !== 0) product ^= right
    left <<= 1
    right = (right & 1) === 1 ? (right >>> 1) ^ POLYNOMIAL : right >>> 1
  }
  return product >>> 0
}

/** x to the 8 times `bytes`: what a CRC is multiplied by when so many bytes follow it. */
function shift(bytes: number): number {
  let power = 0x00800000
  let result = 0x80000000
  for (let rest = bytes; rest > 0; rest = Math.floor(rest / 2)) {
    if (rest % 2 === 1) result = multiply(power, result)
    power = multiply(power, power)
  }
  return result
}

export function joinCrc(first: number, second: number, secondBytes: number): number {
  return (multiply(shift(secondBytes), first) ^ second) >>> 0
}
