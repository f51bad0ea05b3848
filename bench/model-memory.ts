/** A process of its own for `quantisations.ts`: opens a model, feeds it, and says what is resident, in bytes. */
import { Llama } from '../src/engine/llama/llama.ts'
import { FED_TOKENS, openedAs } from './quantised.ts'

const [modelPath = ''] = process.argv.slice(2)
const llama = Llama.load({ modelPath, ...openedAs })
await llama.decode(Array.from({ length: FED_TOKENS }, (_, i) => ({ token: 100 + i, position: i, lane: 0, logits: i === FED_TOKENS - 1 })))
process.stdout.write(`${process.memoryUsage().rss}\n`)
llama.dispose()
