/**
 * Writes the default model, or another, in other quantisations into the cache, by the library's own quantiser: for tests
 * and measurements of what each does to speed and exactness. What is lost in the model it starts from stays lost.
 */
import { mkdirSync, renameSync, rmSync, statSync } from 'node:fs'
import { basename, join } from 'node:path'
import { parseArgs } from 'node:util'
import { quantise, QUANTISATIONS, type Quantisation } from '../src/engine/llama/quantise.ts'
import { cacheDirectory } from '../src/models/cache.ts'
import { LOCAL_FOLDER } from '../src/models/cached.ts'
import { resolveModel } from '../src/models/resolve.ts'

const WANTED: readonly Quantisation[] = ['Q4_0', 'Q4_K_M', 'Q5_0', 'Q8_0', 'IQ4_NL', 'F16', 'F32']

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'default' },
    as: { type: 'string', default: WANTED.join(',') },
    threads: { type: 'string', default: '1' },
    help: { type: 'boolean', default: false },
  },
})
if (values.help) {
  console.log(`npm run quantise -- [--model default] [--as ${WANTED.join(',')}] [--threads 1]\nknown: ${QUANTISATIONS.join(', ')}`)
  process.exit(0)
}

const asked = values.as.split(',').map((name) => {
  const found = QUANTISATIONS.find((one) => one === name)
  if (found === undefined) throw new Error(`--as ${name}: known are ${QUANTISATIONS.join(', ')}`)
  return found
})
const { path: from } = await resolveModel({ model: values.model, env: process.env })
const folder = join(cacheDirectory(process.env), LOCAL_FOLDER)
mkdirSync(folder, { recursive: true })
const stem = basename(from).replace(/\.gguf$/i, '').replace(/[.-](I?Q\d\w*|B?F16|F32)$/i, '')
for (const as of asked) {
  const to = join(folder, `${stem}.${as}.gguf`)
  const partial = `${to}.${process.pid}.part`
  try {
    quantise(from, partial, as, Number(values.threads))
    renameSync(partial, to)
  } finally {
    rmSync(partial, { force: true })
  }
  console.log(`${as.padEnd(7)} ${(statSync(to).size / 1e6).toFixed(1).padStart(7)} MB  entracte serve --model ${basename(to).replace(/\.gguf$/, '')}`)
}
