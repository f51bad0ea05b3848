/** Who takes places at an engine's door without a word. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect, Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { firstAdmitted } from '../../src/engine/listener.ts'
import { admitEngine, HANDSHAKE_MS_MAX } from '../../src/protocol/handshake.ts'

const SECRET = 'known on both sides'

const hasOpenssl = ((): boolean => {
  try {
    execFileSync('openssl', ['version'], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
})()

test('over TLS those who say nothing give their places back, and who knows the secret gets in', { skip: hasOpenssl ? false : 'there is no openssl' }, async (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'listener-'))
  t.after(() => rmSync(dir, { recursive: true }))
  const [certFile, keyFile] = [join(dir, 'cert.pem'), join(dir, 'key.pem')]
  execFileSync('openssl', [
    'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=engine', '-addext', 'subjectAltName=IP:127.0.0.1',
  ], { stdio: 'ignore' })
  // It listens for as long as its process lives, which here goes on.
  const listens = t.mock.method(Server.prototype, 'listen')
  t.after(() => (listens.mock.calls[0]?.this as Server | undefined)?.close())
  let admitted: ReturnType<typeof firstAdmitted> | null = null
  const port = await new Promise<number>((resolve) => {
    admitted = firstAdmitted({ host: '127.0.0.1', port: 0, secret: SECRET, tls: { certFile, keyFile } }, resolve)
  })
  const silent = Array.from({ length: 16 }, () => connect(port, '127.0.0.1').on('error', () => undefined).resume())
  t.after(() => silent.forEach((socket) => socket.destroy()))
  const beganMs = performance.now()
  const late = setTimeout(() => silent.forEach((socket) => socket.destroy(new Error('it kept its place'))), 2 * HANDSHAKE_MS_MAX)
  await Promise.all(silent.map((socket) => once(socket, 'close')))
  clearTimeout(late)
  assert.ok(performance.now() - beganMs < 1.5 * HANDSHAKE_MS_MAX, 'they kept their places')
  const control = connectTls({ host: '127.0.0.1', port, ca: readFileSync(certFile) })
  await once(control, 'secureConnect')
  await admitEngine(control, SECRET)
  const engine = await admitted as unknown as Awaited<ReturnType<typeof firstAdmitted>>
  engine.destroy()
  control.destroy()
})
