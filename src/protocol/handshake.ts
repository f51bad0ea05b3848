/**
 * Owns how an engine and a control plane on different machines prove to each other that they know one secret, before
 * anything else is said: a nonce from each side, and from each a digest over both, keyed with the secret, which itself
 * never travels. The control plane proves itself first, so that a stranger learns nothing from an engine.
 *
 *   engine  -> challenge { nonce }          control -> answer { nonce, mac }          engine -> proof { mac }
 *
 * A digest names the role, so neither side's can be sent back to it; under TLS it also covers the connection's own keys,
 * so that who sits in the middle of two connections cannot pass it on.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Socket } from 'node:net'
import { TLSSocket } from 'node:tls'
import { encodeFrame, FrameReader } from './frame.ts'

/** A peer that has not proved itself by then is sent away. */
export const HANDSHAKE_MS_MAX = 10_000
/** Of one message; a stranger makes nobody keep more. */
const MESSAGE_BYTES_MAX = 1_024
const NONCE_BYTES = 32
const BINDING_BYTES = 32
/** Fewer characters can be guessed. */
export const SECRET_CHARS_MIN = 16

/** The other side does not know the secret, or does not speak like one of us. */
export class HandshakeError extends Error {}

type Role = 'engine' | 'control plane'

/** The engine's part. `socket` is connected; where this throws it is to be destroyed. */
export async function admitControl(socket: Socket, secret: string): Promise<void> {
  const own = randomBytes(NONCE_BYTES).toString('hex')
  const answered = nextMessage(socket)
  socket.write(encodeFrame({ kind: 'challenge', nonce: own }))
  const { nonce, mac } = await answered
  const theirs = text(nonce)
  if (!isSame(text(mac), macOf(socket, secret, 'control plane', own, theirs))) throw new HandshakeError('who called does not know the secret')
  socket.write(encodeFrame({ kind: 'proof', mac: macOf(socket, secret, 'engine', own, theirs) }))
}

/** The control plane's part. */
export async function admitEngine(socket: Socket, secret: string): Promise<void> {
  const { nonce } = await nextMessage(socket)
  const theirs = text(nonce)
  const own = randomBytes(NONCE_BYTES).toString('hex')
  const proved = nextMessage(socket)
  socket.write(encodeFrame({ kind: 'answer', nonce: own, mac: macOf(socket, secret, 'control plane', theirs, own) }))
  const { mac } = await proved
  if (!isSame(text(mac), macOf(socket, secret, 'engine', theirs, own))) throw new HandshakeError('who answers does not know the secret')
}

function macOf(socket: Socket, secret: string, role: Role, engineNonce: string, controlNonce: string): string {
  const binding = socket instanceof TLSSocket ? socket.exportKeyingMaterial(BINDING_BYTES, 'EXPORTER-entracte', Buffer.alloc(0)) : Buffer.alloc(0)
  return createHmac('sha256', secret).update(`entracte 1\n${role}\n${engineNonce}\n${controlNonce}\n`).update(binding).digest('hex')
}

function isSame(given: string, expected: string): boolean {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

function text(value: unknown): string {
  if (typeof value === 'string' && value !== '') return value
  throw new HandshakeError('the other side does not speak this protocol')
}

/** One frame. Nobody may say more before he is answered: what came with it is refused, what comes later stays unread. */
function nextMessage(socket: Socket): Promise<Record<string, unknown>> {
  return new Promise((resolve, reject) => {
    const reader = new FrameReader(MESSAGE_BYTES_MAX)
    const done = (end: () => void): void => {
      clearTimeout(timer)
      socket.off('data', read).off('error', failed).off('close', closed)
      socket.pause()
      end()
    }
    const failed = (error: Error): void => done(() => reject(new HandshakeError(error.message, { cause: error })))
    const closed = (): void => done(() => reject(new HandshakeError('the other side hung up: it serves somebody else, or does not know the secret')))
    const read = (bytes: Buffer): void => {
      try {
        for (const { message } of reader.push(bytes)) {
          if (reader.heldBytes > 0) throw new Error('the other side said more than it was asked for')
          return done(() => resolve(typeof message === 'object' && message !== null ? message as Record<string, unknown> : {}))
        }
      } catch (error) {
        failed(error instanceof Error ? error : new Error(String(error)))
      }
    }
    const timer = setTimeout(() => failed(new Error(`nothing was said within ${HANDSHAKE_MS_MAX / 1_000} s`)), HANDSHAKE_MS_MAX).unref()
    socket.on('data', read).on('error', failed).on('close', closed)
    socket.resume()
  })
}
