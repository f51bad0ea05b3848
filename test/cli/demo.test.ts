import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { MAIN } from './command.ts'

/** Soon enough to find the first one at work. */
const AGAIN_MS = 5

describe('entracte demo', () => {
  test('called off while its agents run ends with 130 and leaves no folder, also where the signal comes twice', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'entracte-cli-'))
    try {
      const child = spawn(process.execPath, [MAIN, 'demo', '--model', 'tiny'], { env: { ...process.env, TMPDIR: folder }, stdio: ['ignore', 'pipe', 'inherit'] })
      let said = ''
      child.stdout.on('data', (text: Buffer) => {
        const began = said.includes('1 of 2')
        said += text.toString()
        if (began || !said.includes('1 of 2')) return
        assert.equal(readdirSync(folder).filter((name) => name.startsWith('entracte-run-')).length, 1)
        child.kill('SIGINT')
        setTimeout(() => child.kill('SIGINT'), AGAIN_MS)
      })
      const code = await new Promise((resolve) => child.on('close', resolve))
      assert.equal(code, 130, said)
      assert.deepEqual(readdirSync(folder).filter((name) => name.startsWith('entracte-run-')), [])
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
})
