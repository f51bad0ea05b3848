/**
 * Owns one life of an engine process: spawned, connected, and gone. Leaves the talk with it to `engine-link.ts`.
 *
 * P1 `lost` is called once, for whatever ended this life, and nothing is said after it.
 * P2 `gone` resolves when the pid is dead, and not before: a process that does not go is killed, after its lease where
 *    its socket was closed (it ends itself then), at once where it hangs.
 */
import { spawn, type ChildProcess } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { EXIT_REFUSED, type EngineEvent, type EngineRequest } from '../protocol/engine.ts'
import { EngineLink, type LinkTerms } from './engine-link.ts'
import { markProcess, SOCKET_DIR_PREFIX, unmarkProcess } from './orphan.ts'

const CONNECT_EVERY_MS = 25
/** A process told to stop ends in this time, or is killed. */
const STOP_MS_MAX = 3_000
/** After the first sign of an end: time for exit code, last frames and last words to come in. */
const LAST_WORDS_MS = 250
const LAST_WORDS_CHARS = 2_000

interface ProcessOptions extends LinkTerms {
  readonly workerPath: string
  /** Without the socket. */
  readonly args: readonly string[]
  readonly pidFile: string
  /** It listens by then: loading a model from a cold disk takes a while. */
  readonly startMsMax: number
}

interface ProcessHandlers {
  event(event: EngineEvent, bin: readonly Uint8Array[]): void
  /** `refused`: it said that it cannot serve, and another start would end the same. */
  lost(why: string, refused: boolean): void
}

export class EngineProcess {
  readonly gone: Promise<void>
  readonly #options: ProcessOptions
  readonly #handlers: ProcessHandlers
  readonly #child: ChildProcess
  readonly #socketDir: string | null
  readonly #socketPath: string
  readonly #startedMs = performance.now()
  readonly #timers = new Set<NodeJS.Timeout>()
  #link: EngineLink | null = null
  #lastWords = ''
  #ended: string | null = null
  #lost = false
  #refused = false
  #isDead = false
  #wordsSaid = false
  #stopping = false

  /** Throws where the temporary folder or the pid file cannot be written. */
  constructor(options: ProcessOptions, handlers: ProcessHandlers) {
    this.#options = options
    this.#handlers = handlers
    this.#socketDir = process.platform === 'win32' ? null : mkdtempSync(join(tmpdir(), SOCKET_DIR_PREFIX))
    this.#socketPath = this.#socketDir === null
      ? `\\\\.\\pipe\\entracte-${process.pid}-${process.hrtime.bigint()}` : join(this.#socketDir, 's')
    // A group of its own: an interrupt from the terminal is for us, and we let go of the engine in good order.
    this.#child = spawn(process.execPath, [options.workerPath, '--socket', this.#socketPath, ...options.args], {
      stdio: ['ignore', 'ignore', 'pipe'], detached: process.platform !== 'win32', windowsHide: true,
    })
    this.gone = this.#watchChild()
    if (this.#child.pid !== undefined) markProcess(options.pidFile, { pid: this.#child.pid, socket: this.#socketPath })
    this.#connect()
  }

  send(message: EngineRequest, bin: readonly Uint8Array[] = []): void {
    this.#link?.send(message, bin)
  }

  /** Asks it to go and makes sure that it does. */
  async stop(): Promise<void> {
    this.#stopping = true
    this.send({ kind: 'stop', reign: this.#options.reign })
    if (this.#link === null) this.#kill()
    this.#after(STOP_MS_MAX, () => this.#kill())
    await this.gone
    this.#lose('it was told to stop')
  }

  /** Its life is over for us, whatever it still does. */
  condemn(why: string, kill = false): void {
    this.#lose(why)
    if (kill) this.#kill()
  }

  // ---------------------------------------------------------------- the process

  #watchChild(): Promise<void> {
    const child = this.#child
    child.stderr?.setEncoding('utf8')
    child.stderr?.on('data', (text: string) => { this.#lastWords = (this.#lastWords + text).slice(-LAST_WORDS_CHARS) })
    return new Promise((resolve) => {
      const dead = (how: string): void => {
        if (this.#isDead) return
        this.#isDead = true
        this.#ended = how
        unmarkProcess(this.#options.pidFile)
        if (this.#socketDir !== null) rmSync(this.#socketDir, { recursive: true, force: true })
        this.#endSoon()
        resolve()
      }
      child.stderr?.once('close', () => {
        this.#wordsSaid = true
        this.#endSoon()
      })
      child.once('error', (error) => { if (child.pid === undefined) dead(`it could not be started: ${error.message}`) })
      child.once('exit', (code, signal) => {
        this.#refused = code === EXIT_REFUSED
        dead(signal === null ? `its process ended with code ${code}` : `its process was ended by ${signal}`)
      })
    })
  }

  #kill(): void {
    if (!this.#isDead) this.#child.kill('SIGKILL')
  }

  /** At a sign of the end: leaves what was said before it the time to arrive. */
  #endSoon(): void {
    if (this.#lost) return
    const end = (): void => {
      const words = this.#lastWords.trim().split('\n').slice(-6).join(' | ')
      this.#lose(`${this.#ended ?? 'it closed its socket'}${words === '' ? '' : `; its last words: ${words}`}`)
    }
    if (this.#isDead && this.#wordsSaid && this.#link?.closed !== false) end()
    else this.#after(LAST_WORDS_MS, end)
  }

  #lose(why: string): void {
    if (this.#lost) return
    this.#lost = true
    for (const timer of this.#timers) clearTimeout(timer)
    this.#timers.clear()
    this.#link?.destroy()
    if (this.#link === null) this.#kill()
    else if (!this.#isDead) setTimeout(() => this.#kill(), this.#stopping ? STOP_MS_MAX : this.#options.leaseMs).unref()
    if (!this.#stopping) this.#handlers.lost(why, this.#refused)
  }

  #after(ms: number, call: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      call()
    }, ms).unref()
    this.#timers.add(timer)
  }

  // ---------------------------------------------------------------- the socket

  /** The engine listens once its model is loaded. */
  #connect(): void {
    if (this.#lost || this.#isDead) return
    const { startMsMax } = this.#options
    if (performance.now() - this.#startedMs > startMsMax) {
      return this.condemn(`it did not listen within ${startMsMax / 1_000} s (startSecondsMax)`, true)
    }
    const socket = connect(this.#socketPath)
    const again = (): void => this.#after(CONNECT_EVERY_MS, () => this.#connect())
    socket.once('error', again)
    socket.once('connect', () => {
      socket.off('error', again)
      this.#greet(socket)
    })
  }

  #greet(socket: Socket): void {
    if (this.#lost || this.#isDead) {
      socket.destroy()
      return
    }
    this.#link = new EngineLink(socket, this.#options, {
      event: this.#handlers.event,
      failed: (why, hangs) => this.condemn(why, hangs),
      closed: (why) => {
        this.#ended ??= why
        this.#endSoon()
      },
    })
  }
}
