/** Owns running the built command line as a user would, in a folder of its own. */
import { spawn } from 'node:child_process'
import { join } from 'node:path'

export const MAIN = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.js')

export interface Ran { readonly code: number | null; readonly stdout: string; readonly stderr: string }

export function entracte(args: readonly string[], options: { readonly cwd?: string; readonly env?: Record<string, string> } = {}): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [MAIN, ...args], { cwd: options.cwd, env: { ...process.env, ...options.env }, stdio: ['ignore', 'pipe', 'pipe'] })
    const said = { stdout: '', stderr: '' }
    child.stdout.setEncoding('utf8').on('data', (text: string) => { said.stdout += text })
    child.stderr.setEncoding('utf8').on('data', (text: string) => { said.stderr += text })
    child.on('error', reject)
    child.on('close', (code) => resolve({ code, ...said }))
  })
}
