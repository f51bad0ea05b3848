/**
 * Owns one start of a control plane over a data directory, in a process of its own: the store opened, the state recovered,
 * the reign begun, a scripted engine joined and a new call accepted. Prints what each took as one line of JSON.
 *   node dist/bench/recovered.js FOLDER
 */
import { join } from 'node:path'
import { tenantId } from '../src/core/ids.ts'
import { Driver } from '../src/driver/driver.ts'
import { recover } from '../src/driver/recover.ts'
import { systemClock, systemIds } from '../src/driver/system.ts'
import { readScript } from '../src/engines/script-file.ts'
import { createScriptedEngine } from '../src/engines/scripted.ts'
import { openStore } from '../src/store/store.ts'
import { LIVES_CONFIG } from './lives.ts'

const folder = process.argv[2] ?? ''
const fatal = (error: Error): never => {
  process.stderr.write(`${error.stack ?? error.message}\n`)
  process.exit(1)
}
const atMs: Record<string, number> = { process: performance.now() }
const store = openStore(join(folder, 'data'), {
  onFailure: fatal, onLoss: ({ kind, id, why }) => fatal(new Error(`${kind} ${id}: ${why}`)), digestFile: async () => null,
  imagesDir: join(folder, 'images'), imageBytesMax: 1 << 30, bodyBytesMax: 2 ** 40, logRetentionUs: Number.MAX_SAFE_INTEGER,
  makeSnapshot: null,
})
atMs['open'] = performance.now()
const recovered = recover(LIVES_CONFIG, store.log)
atMs['recover'] = performance.now()
const engine = createScriptedEngine({ id: 'e0', script: readScript({ models: ['m'], items: [{ text: 'here again' }] }) })
const driver = new Driver(
  { clock: systemClock(recovered.core.nowUs, recovered.core.wallOffsetUs), ids: systemIds, log: store.log, bodies: store.bodies, images: store.images, engines: [engine] },
  { checkEveryTurns: 0, onFatal: fatal, storeFailure: 'refuse', snapshotEveryFacts: 0 },
  recovered,
)
await driver.start()
atMs['reign'] = performance.now()
const joined = new Promise<void>((resolve) => {
  driver.watch(({ fact }) => { if (fact.kind === 'engine.joined') resolve() })
})
await joined
const handle = driver.submit({
  tenant: tenantId('tenant-1'), model: 'm', digest: 'a-new-call', promptTokensEstimate: 50, maxTokens: 64, seed: 1, exactResume: null,
  priorityClass: 'default', deadlineUs: null, body: '{}',
  claims: {
    identity: { source: 'anonymous', confidence: 0 }, program: null, thread: null, session: null, parent: null, node: null, parents: [], epoch: null, final: false,
    toolResults: [], kind: 'bench',
  },
})
for await (const update of handle.updates) {
  if (update.kind !== 'arrived') fatal(new Error(`the call was answered with ${JSON.stringify(update)}`))
  break
}
atMs['serving'] = performance.now()
const { programs, calls, seq } = driver.core
const { user, system } = process.cpuUsage()
process.stdout.write(`${JSON.stringify({ atMs, processorMs: (user + system) / 1_000, programs: programs.size, calls: calls.size, seq, snapshotSeq: recovered.snapshotSeq, rssBytes: process.memoryUsage().rss })}\n`)
process.exit(0)
