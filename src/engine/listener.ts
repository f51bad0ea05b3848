/**
 * Owns where an engine listens, and who gets in: the one that comes first on a socket of this machine; over TCP, the first
 * that has proved to know the secret. Any other is turned away; the engine serves one control plane in its life.
 */
import { readFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { Server, Socket } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { admitControl, HANDSHAKE_MS_MAX, HandshakeError, SECRET_CHARS_MIN } from '../protocol/handshake.ts'

interface NetworkDoor {
  readonly host: string
  readonly port: number
  readonly secret: string
  /** PEM files; null: in clear. */
  readonly tls: { readonly certFile: string; readonly keyFile: string } | null
}

/** Who has not proved himself yet takes a place; at it the next is refused by the system. */
const STRANGERS_MAX = 16
/** A peer that vanished without a word is noticed by its lease; this is for the connection itself. */
const KEEP_ALIVE_MS = 15_000

/** Throws ListenError where there is no usable one. */
export function secretIn(file: string): string {
  const secret = textIn(file, 'the secret').trim()
  if (secret.length >= SECRET_CHARS_MIN) return secret
  throw new ListenError(`the secret in ${file} has ${secret.length} characters; at least ${SECRET_CHARS_MIN} are wanted`)
}

/** What it is told to listen with cannot be used. */
export class ListenError extends Error {}

function textIn(file: string, what: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch (error) {
    throw new ListenError(`${what} in ${file} cannot be read: ${error instanceof Error ? error.message : String(error)}`)
  }
}

export function firstOnSocket(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const server = createServer()
    server.on('error', reject)
    server.once('connection', (socket: Socket) => {
      server.on('connection', (other: Socket) => other.destroy())
      resolve(socket)
    })
    server.listen(path)
  })
}

/** `listening`: told once, with the port. */
export function firstAdmitted(door: NetworkDoor, listening: (port: number) => void): Promise<Socket> {
  return new Promise((resolve, reject) => {
    let taken = false
    const meet = async (socket: Socket): Promise<void> => {
      const who = socket.remoteAddress ?? 'a caller'
      const ignore = (): void => undefined
      socket.on('error', ignore)
      socket.setNoDelay(true).setKeepAlive(true, KEEP_ALIVE_MS)
      try {
        if (taken) throw new HandshakeError('it serves another control plane')
        await admitControl(socket, door.secret)
        // Two may have proved themselves at once.
        if (taken) throw new HandshakeError('it serves another control plane')
        taken = true
        socket.off('error', ignore)
        resolve(socket)
      } catch (error) {
        socket.destroy()
        if (!(error instanceof HandshakeError)) return reject(error instanceof Error ? error : new Error(String(error)))
        process.stderr.write(`turned away ${who}: ${error.message}\n`)
      }
    }
    const server = serverOf(door, (socket) => { void meet(socket) })
    server.maxConnections = STRANGERS_MAX
    server.on('error', reject)
    server.listen({ host: door.host, port: door.port }, () => {
      const address = server.address()
      listening(typeof address === 'object' && address !== null ? address.port : door.port)
    })
  })
}

function serverOf({ tls }: NetworkDoor, meet: (socket: Socket) => void): Server {
  if (tls === null) return createServer(meet)
  const server = createTlsServer({
    cert: textIn(tls.certFile, 'the certificate'), key: textIn(tls.keyFile, 'its key'), minVersion: 'TLSv1.3', handshakeTimeout: HANDSHAKE_MS_MAX,
  }, meet)
  server.on('tlsClientError', (error, socket) => {
    // One that was too slow keeps its place until it is let go of.
    socket.destroy()
    process.stderr.write(`turned away a caller: ${error.message}\n`)
  })
  return server
}
