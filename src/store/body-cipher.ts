/**
 * Owns how a body looks on disk: AES-256-GCM, with its id and tenant bound to it, so a body put in another's place is
 * refused. Layout: nonce (12), ciphertext, tag (16). The key lies in a file of its own beside the database, readable
 * by its owner alone, so a copy of the database without it says nothing.
 */
import { createCipheriv, createDecipheriv, createHmac, randomBytes } from 'node:crypto'
import { chmodSync, closeSync, fsyncSync, openSync, readFileSync, renameSync, writeSync } from 'node:fs'
import { isFault } from './store-error.ts'

const CIPHER = 'aes-256-gcm'
const KEY_BYTES = 32
const NONCE_BYTES = 12
const TAG_BYTES = 16

export class BodyCipher {
  /** Tells one key from another and says nothing about it. */
  readonly mark: string
  readonly #key: Buffer

  constructor(key: Buffer) {
    this.#key = key
    this.mark = createHmac('sha256', key).update('entracte bodies').digest('hex').slice(0, 16)
  }

  seal(id: string, tenant: string, bytes: Uint8Array): Uint8Array {
    const nonce = randomBytes(NONCE_BYTES)
    const cipher = createCipheriv(CIPHER, this.#key, nonce)
    cipher.setAAD(boundTo(id, tenant))
    return Buffer.concat([nonce, cipher.update(bytes), cipher.final(), cipher.getAuthTag()])
  }

  /** Null where one bit of it, of its id or of its tenant is not what was sealed. */
  open(id: string, tenant: string, sealed: Uint8Array): Uint8Array | null {
    if (sealed.length < NONCE_BYTES + TAG_BYTES) return null
    const decipher = createDecipheriv(CIPHER, this.#key, sealed.subarray(0, NONCE_BYTES))
    decipher.setAAD(boundTo(id, tenant))
    decipher.setAuthTag(sealed.subarray(sealed.length - TAG_BYTES))
    const bytes = decipher.update(sealed.subarray(NONCE_BYTES, sealed.length - TAG_BYTES))
    try {
      decipher.final()
    } catch {
      return null
    }
    return bytes
  }
}

const boundTo = (id: string, tenant: string): Buffer => Buffer.from(JSON.stringify([id, tenant]))

/** Null where there is no such file, or one that no key of ours is in. */
export function readKey(path: string): Buffer | null {
  try {
    const key = readFileSync(path)
    chmodSync(path, 0o600)
    return key.length === KEY_BYTES ? key : null
  } catch (thrown) {
    if (isFault(thrown, 'ENOENT')) return null
    throw thrown
  }
}

/** A fresh key, on disk before it is used. */
export function makeKey(path: string): Buffer {
  const key = randomBytes(KEY_BYTES)
  const partial = `${path}.partial`
  const file = openSync(partial, 'w', 0o600)
  try {
    writeSync(file, key)
    fsyncSync(file)
  } finally {
    closeSync(file)
  }
  renameSync(partial, path)
  return key
}
