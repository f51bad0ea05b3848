import assert from 'node:assert/strict'
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { quantise } from '../../src/engine/llama/quantise.ts'
import { TINY_MODEL, tokenizer, writeTinyGguf } from '../../src/models/tiny-gguf.ts'
import { shapeFile, writeShape } from '../models/shapes.ts'
import { entracte } from './command.ts'

const folder = mkdtempSync(join(tmpdir(), 'entracte-show-'))
const cache = join(folder, 'cache')
after(() => rmSync(folder, { recursive: true, force: true }))
before(() => {
  mkdirSync(cache)
  writeTinyGguf(join(folder, 'mine.gguf'))
})

const show = (...args: readonly string[]) => entracte(['models', 'show', ...args], { cwd: folder, env: { ENTRACTE_CACHE: cache } })
const KEY = (exact: string) => [`probe1/${TINY_MODEL.digest}`, exact].join('/')

describe('entracte models show', () => {
  test('says what an engine will do with the model, and what fits', async () => {
    const { code, stdout } = await show('mine.gguf')
    assert.equal(code, 0)
    for (const line of [
      /^model +mine: .*mine\.gguf$/m, /^file +897\.7 KiB, Q8_0, 855168 weights, licence apache-2\.0$/m,
      /^architecture +llama, 4 layers, 264 tokens/m, /^context +trained for 32768 tokens$/m, /^KV +1\.0 KiB a token$/m,
      /^template +from the file$/m, /^tools +the template knows none/m, /^a State +can be cut at a token, copied, moved to host and disk$/m,
      /^exact +not probed yet/m, /^fits here +about \d+.* lanes of 2048 tokens/m,
    ]) assert.match(stdout, line)
  })

  test('says the same as JSON, with the answers of the probe for this model, library and processor only', async () => {
    const first = JSON.parse((await show('mine.gguf', '--json', '--lane-tokens', '4096')).stdout) as {
      digest: string; engine: { library: string; cpuKernel: string; can: object }; fits: { laneTokens: number; lanes: number }[]
    }
    assert.equal(first.digest, TINY_MODEL.digest)
    assert.deepEqual(first.engine.can, { trim: true, copy: true, image: true })
    assert.deepEqual(first.fits.map(({ laneTokens }) => laneTokens), [4_096])
    const { library, cpuKernel } = first.engine
    const answers = [
      [KEY(`${library}/${cpuKernel}/columns/nofa/repacked/4/512/128/1`), { answer: 'no', because: 'it is not' }],
      [KEY(`${library}/other/columns/nofa/repacked/4/512/128/1`), { answer: 'yes', because: 'elsewhere' }],
    ]
    writeFileSync(join(cache, 'probes.json'), JSON.stringify({ answers }))
    const { stdout } = await show('mine.gguf')
    assert.match(stdout, /^exact +no with 4 lanes of 512, chunks of 128, threads 1, flash attention off, weights repacked, rows as they come: it is not$/m)
    assert.match(stdout, /^exact with +not looked for yet/m)
    assert.doesNotMatch(stdout, /elsewhere/)
  })

  test('finds out with --probe which settings are exact and what they cost, and keeps it', async () => {
    quantise(join(folder, 'mine.gguf'), join(folder, 'half.gguf'), 'F16', 1)
    const { stdout, stderr } = await show('half.gguf', '--probe')
    assert.match(stderr, /^flash attention off, weights repacked, rows as they come: exact no, decodes \d+ and prefills \d+ tokens a second$/m)
    assert.match(stderr, /^flash attention off, weights repacked, two rows at least: exact yes/m)
    assert.match(stdout, /^exact with +rowUnit: 2; decodes at [\d.]+ and prefills at [\d.]+ of the speed of the settings as they come$/m)
    const again = await show('half.gguf')
    assert.equal(again.stderr, '')
    assert.match(again.stdout, /^exact with +rowUnit: 2;/m)
    const whole = await show('mine.gguf', '--probe')
    // Which of the two is faster is the machine's to say.
    assert.match(whole.stdout, /^exact with +(the settings as they come, which costs nothing|flashAttention: exact; decodes at .*)$/m)
    assert.deepEqual(whole.stderr.trim().split('\n').map((line) => line.split(':')[0]), [
      'flash attention off, weights repacked, rows as they come', 'flash attention exact, weights repacked, rows as they come',
    ])
  })

  test('says what a family of models cannot, and what follows', async () => {
    writeShape(join(folder, 'hybrid.gguf'), 'hybrid')
    const { stdout } = await show('hybrid.gguf')
    assert.match(stdout, /^a State +can be copied; cannot be cut or moved: what would need it is recomputed$/m)
    assert.match(stdout, /^template +the file has none/m)
    assert.match(stdout, /^KV +\d+ B a token and [\d.]+ KiB a State$/m)
  })
})

describe('a model file that cannot be served', () => {
  const made = (name: string, bytes: Buffer): string => {
    writeFileSync(join(folder, name), bytes)
    return name
  }
  const without = (letter: string): Buffer => shapeFile('grouped', tokenizer().map(([key, value]) => key === 'tokenizer.ggml.tokens' && value.kind === 'texts'
    ? [key, { kind: 'texts', value: value.value.map((token) => token === letter ? '<lost>' : token) }] : [key, value]))

  test('is refused with what, why and what next; nothing crashes', async () => {
    const whole = shapeFile('grouped')
    const huge = made('huge.gguf', whole)
    truncateSync(join(folder, huge), 2 ** 42)
    const unknown = Buffer.from(whole)
    unknown.write('zzama', whole.indexOf('llama'))
    for (const [file, says] of [
      [made('cut.gguf', whole.subarray(0, whole.length - 9)), /cut\.gguf is cut short: its last tensor ends at byte \d+ and the file at \d+\.\n {2}next: fetch the file again/],
      [made('half-head.gguf', whole.subarray(0, 500)), /is cut short: it ends at byte 500, in the middle of its head\.\n {2}next: fetch/],
      [made('empty.gguf', Buffer.alloc(0)), /is not a GGUF file: it begins with ""\.\n {2}next: convert/],
      [made('page.gguf', Buffer.from('<html>')), /is not a GGUF file: it begins with "<htm"/],
      [made('unknown.gguf', unknown), /cannot serve this model\.\n {2}why: .*unknown model architecture: 'zzama'/],
      [huge, /huge\.gguf has 4398\.0 GB and this machine has [\d.]+ GB of memory left\.\n {2}next: take a smaller model/],
      [made('lost.gguf', without('q')), /cannot serve this model\.\n {2}why: .*tokenizer loses text: "q.* does not come back.* take another file/],
      ['nowhere.gguf', /There is no model file .*nowhere\.gguf/],
      ['nobody', /There is no model nobody .*\n {2}next: "entracte models ls"/],
      ['owner/repo', /There is no model owner\/repo .*\n {2}next: fetch it first: entracte models pull owner\/repo/],
    ] as const) {
      const { code, stderr, stdout } = await show(file)
      assert.equal(code, 1, file)
      assert.match(stderr, says)
      assert.equal(stdout, '')
      assert.doesNotMatch(stderr, /\n {4}at /, 'no stack')
    }
  })

  test('is not the library\'s to refuse alone: a library that is missing, or none, is said', async () => {
    for (const [library, says] of [[join(folder, 'no-such'), /directory .*no-such cannot be read/], [folder, /holds no file named like/]] as const) {
      const { code, stderr } = await show('mine.gguf', '--library', library)
      assert.equal(code, 1)
      assert.match(stderr, says)
    }
  })

  test('whatever byte of its head is another, is served or refused, and the command says which', async () => {
    const whole = shapeFile('grouped')
    const headBytes = whole.indexOf('token_embd')
    for (let round = 0; round < 12; round++) {
      const bytes = Buffer.from(whole)
      const at = 24 + Math.floor((headBytes - 24) * round / 12)
      bytes[at] = (bytes[at] ?? 0) ^ 0x81
      const { code, stdout, stderr } = await show(made('changed.gguf', bytes))
      assert.ok(code === 0 ? stdout.startsWith('model ') : code === 1 && stderr.startsWith('entracte: '), `byte ${at}: ${stderr}`)
      assert.doesNotMatch(stderr, /\n {4}at /)
    }
  })
})
