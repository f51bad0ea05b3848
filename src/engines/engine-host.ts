/**
 * Owns an engine that is served to a control plane on another machine: its process listens, serves one control plane in
 * its life, and another is started when that life is over, so that the next control plane finds it empty.
 */
import { spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { EXIT_REFUSED } from '../protocol/engine.ts'
import { argsOf, type EngineSettings } from './embedded-words.ts'
import { Lines } from './lines.ts'
import { RESTART_LIMITS, Restarts } from './restarts.ts'

/** Whoever comes back after a broken connection does not wait for long. */
const PAUSE_MS_MAX = 5_000

export interface HostOptions extends EngineSettings {
  readonly listen: { readonly host: string; readonly port: number }
  readonly secretFile: string
  /** Null: in clear. */
  readonly tls: { readonly certFile: string; readonly keyFile: string } | null
}

export interface EngineHost {
  /** Resolves when it was closed; rejects where the process says that it cannot serve. */
  readonly ended: Promise<void>
  close(): void
}

/** `say`: what the process says, line by line, and when it is started again. */
export function hostEngine(options: HostOptions, say: (line: string) => void): EngineHost {
  const restarts = new Restarts({ ...RESTART_LIMITS, pauseMsMax: PAUSE_MS_MAX })
  const end = new AbortController()
  const live = async (): Promise<void> => {
    while (!end.signal.aborted) {
      const { code, words } = await life(options, end.signal, say)
      if (end.signal.aborted) return
      if (code === EXIT_REFUSED) throw new Error(words)
      const pauseMs = restarts.lost(performance.now())
      say(`the engine is started again in ${pauseMs / 1_000} s`)
      await pause(pauseMs, undefined, { signal: end.signal }).catch(() => undefined)
    }
  }
  return { ended: live(), close: () => end.abort() }
}

function life(options: HostOptions, signal: AbortSignal, say: (line: string) => void): Promise<{ code: number | null; words: string }> {
  const { listen: { host, port }, secretFile, tls } = options
  const images = mkdtempSync(join(tmpdir(), 'entr-images-'))
  const child = spawn(process.execPath, [
    fileURLToPath(new URL('../engine/worker.js', import.meta.url)),
    '--listen', host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`, '--secret-file', secretFile, '--images', images,
    ...(tls === null ? [] : ['--tls-cert', tls.certFile, '--tls-key', tls.keyFile]), ...argsOf(options),
  ], { stdio: ['ignore', 'pipe', 'pipe'], windowsHide: true })
  let words = ''
  for (const stream of [child.stdout, child.stderr]) {
    const lines = new Lines(say)
    stream.setEncoding('utf8').on('data', (text: string) => {
      words = (words + text).slice(-2_000)
      lines.push(text)
    }).on('end', () => lines.end())
  }
  const stop = (): void => void child.kill('SIGKILL')
  signal.addEventListener('abort', stop, { once: true })
  return new Promise((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (code) => {
      signal.removeEventListener('abort', stop)
      rmSync(images, { recursive: true, force: true })
      resolve({ code, words: words.trim() })
    })
  })
}
