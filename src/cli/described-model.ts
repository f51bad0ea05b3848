/**
 * Owns asking the engine's own program what it would do with a model, so that a file the library does not survive ends
 * that process and not this one.
 */
import { spawn } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { argsOf, type EngineSettings } from '../engines/embedded-words.ts'
import type { WireDescription, WireWeight } from '../protocol/engine.ts'
import { CliFailure, EXIT } from './failure.ts'

const WORKER_PATH = fileURLToPath(new URL('../engine/worker.js', import.meta.url))
const ANSWER_CHARS_MAX = 1 << 20

/** Loads the model with these settings. Throws CliFailure where an engine with them cannot serve it. */
export async function describedBy(settings: EngineSettings): Promise<WireDescription> {
  return await answerTo('--describe', settings) as WireDescription
}

/** Loads the model with these settings and finds out what they are worth. Throws as `describedBy`. */
export async function weighedBy(settings: EngineSettings): Promise<WireWeight> {
  return await answerTo('--weigh', settings) as WireWeight
}

async function answerTo(question: '--describe' | '--weigh', settings: EngineSettings): Promise<unknown> {
  const child = spawn(process.execPath, [WORKER_PATH, question, ...argsOf(settings)], { stdio: ['ignore', 'pipe', 'pipe'], windowsHide: true })
  let said = ''
  let words = ''
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => { said = (said + chunk).slice(-ANSWER_CHARS_MAX) })
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => { words = (words + chunk).slice(-ANSWER_CHARS_MAX) })
  const { code, signal } = await new Promise<{ code: number | null; signal: string | null }>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', (ended, by) => resolve({ code: ended, signal: by }))
  })
  if (code === 0) return JSON.parse(said) as unknown
  const why = words.trim().replace(/^engine: /, '')
  if (signal === null) throw new CliFailure(EXIT.failed, 'an engine cannot serve this model.', why, null)
  throw new CliFailure(EXIT.failed, `the library did not survive this model: its process was ended by ${signal}.`, why === '' ? null : why,
    'fetch the file again, or name another.')
}
