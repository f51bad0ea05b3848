/**
 * The composition root: the only file that knows every layer. `start(config)` opens the store, replays it, builds the
 * engines' adapters and the driver, and opens the door; `close()` takes it down in the opposite order.
 */
import { createReadStream, writeFileSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import type { Config, EngineConfig } from './config.ts'
import type { Dump } from './driver/black-box.ts'
import { Driver } from './driver/driver.ts'
import { seconds } from './core/units.ts'
import type { EnginePort } from './driver/ports.ts'
import { recover } from './driver/recover.ts'
import { systemClock, systemIds } from './driver/system.ts'
import { EmbeddedEngine } from './engines/embedded.ts'
import { OpenaiEngine } from './engines/openai.ts'
import { readScript } from './engines/script-file.ts'
import { createScriptedEngine } from './engines/scripted.ts'
import { cacheDirectory, PROBES_FILE } from './models/cache.ts'
import { markInUse } from './models/in-use.ts'
import { resolveModel, type ModelProgress } from './models/resolve.ts'
import { buildApp } from './server/app.ts'
import { makeLog } from './server/log.ts'
import { inThread } from './store/snapshot-thread.ts'
import { openStore } from './store/store.ts'

interface StartHooks {
  readonly onModelProgress?: (progress: ModelProgress) => void
  /** A bug, or a log that cannot be read: by default said and the process ends, since only a restart is honest. */
  readonly onFatal?: (error: Error) => void
}

export interface Server {
  /** Without a path; the API is below `/v1`. */
  readonly url: string
  readonly driver: Driver
  readonly dataDir: string
  close(): Promise<void>
}

/** An engine elsewhere is looked for this often at least. */
const RECONNECT_MS_MAX = 10_000
/** Bodies of open calls, token records and journals; at it the oldest are dropped and recomputed from what clients send. */
const BODY_BYTES_MAX = 512 * 1024 * 1024
/** In production the invariants are checked every so many turns. */
const CHECK_EVERY_TURNS = 1_000

export async function start(config: Config, hooks: StartHooks = {}): Promise<Server> {
  const log = makeLog(config.logLevel)
  let driver: Driver | null = null
  /** Model files are in use until this lets go of them. */
  const models: (() => void)[] = []
  const store = openStore(config.dataDir, {
    imagesDir: config.imagesDir, imageBytesMax: config.core.hostBytesMax, bodyBytesMax: BODY_BYTES_MAX,
    logRetentionUs: seconds(config.logRetentionSeconds),
    digestFile: fileDigest,
    makeSnapshot: inThread(new URL('./snapshot-worker.js', import.meta.url)),
    onLoss: (loss) => log.warn(loss, 'something kept can no longer be had'),
    onFailure: (error) => {
      log.error({ err: error, storeFailure: config.storeFailure }, 'the store failed')
      driver?.storeFailed()
    },
  })
  try {
    const recovered = recover(config.core, store.log)
    log.info({ programs: recovered.core.programs.size, facts: recovered.core.seq, snapshot: recovered.snapshotSeq }, 'the state is recovered')
    const clock = systemClock(recovered.core.nowUs, recovered.core.wallOffsetUs)
    const engines = await Promise.all(config.engines.map((one) => engineOf(one, config, hooks, models)))
    const onFatal = hooks.onFatal ?? ((error: Error, dump: () => Dump) => {
      log.fatal({ err: error, dump: keepDump(config.dataDir, dump) }, 'stopping')
      process.exit(70)
    })
    driver = new Driver(
      { clock, ids: systemIds, log: store.log, bodies: store.bodies, images: store.images, engines },
      { checkEveryTurns: CHECK_EVERY_TURNS, onFatal, storeFailure: config.storeFailure, snapshotEveryFacts: config.snapshotEveryFacts },
      recovered,
    )
    driver.watch(({ fact }) => {
      if (fact.kind === 'engine.joined') {
        log.info({ engine: fact.engine, models: fact.capabilities.models, exact: fact.capabilities.exact }, 'an engine has joined')
        const why = engines.find(({ id }) => id === fact.engine)?.condition?.why
        if (why != null) log.warn({ engine: fact.engine, why }, 'an engine serves otherwise than it was configured')
      }
      if (fact.kind === 'engine.lost') log.warn({ engine: fact.engine, why: fact.why }, 'an engine was lost')
      if (fact.kind === 'result.ignored' && fact.input === 'engineLost') log.warn({ engine: fact.subject, why: fact.why }, 'an engine does not join')
    })
    await driver.start()
    const app = buildApp({ gateway: driver, host: config.listen.host, tenants: config.tenants, limits: config.limits, metricsKey: config.metricsKey, adminKey: config.adminKey, snapshots: store.snapshots, log })
    await app.listen({ ...config.listen })
    return { url: urlOf(app.server.address(), config.listen.host), driver, dataDir: config.dataDir, close: closer(app, driver, store, models) }
  } catch (error) {
    await driver?.stop()
    for (const letGo of models) letGo()
    await store.close()
    throw error
  }
}

/** Where it is kept, by the number of its law, so that restarts do not pile them up; or why it is not. */
function keepDump(dataDir: string, dump: () => Dump): string {
  try {
    const told = dump()
    const path = join(dataDir, `breach-${told.law}.json`)
    writeFileSync(path, JSON.stringify(told))
    return path
  } catch (error) {
    return `none: ${error instanceof Error ? error.message : String(error)}`
  }
}

function closer(
  app: { close(): PromiseLike<unknown> }, driver: Driver, store: { close(): Promise<void> }, models: readonly (() => void)[],
): () => Promise<void> {
  let closing: Promise<void> | null = null
  const close = async (): Promise<void> => {
    await app.close()
    await driver.stop()
    for (const letGo of models) letGo()
    await store.close()
  }
  return () => closing ??= close()
}

function urlOf(address: AddressInfo | string | null, host: string): string {
  const port = typeof address === 'object' ? address?.port : undefined
  return `http://${host.includes(':') ? `[${host}]` : host}:${port ?? 0}`
}

async function engineOf(one: EngineConfig, config: Config, hooks: StartHooks, models: (() => void)[]): Promise<EnginePort> {
  switch (one.kind) {
    case 'scripted':
      return createScriptedEngine({ id: one.id, script: readScript(one.script) })
    case 'openai':
      return new OpenaiEngine({
        id: one.id, baseUrl: one.baseUrl, apiKey: one.apiKey, models: [one.model], contextTokens: one.contextTokens, runningMax: one.runningMax,
      })
    case 'remote': {
      const { id, host, port, model, secret, tls, answerSeconds, batchSecondsMax, memoryMiBMax } = one
      return new EmbeddedEngine({
        id, models: [model], remote: { host, port, tls, secret: secret ?? '' },
        limits: {
          leaseMs: Math.round(answerSeconds * 1_000), batchMsMax: batchSecondsMax * 1_000, pauseMsMax: RECONNECT_MS_MAX,
          // To be out of reach is no loop: its process is another machine's.
          loopAfter: Infinity,
          memoryBytesMax: memoryMiBMax === null ? null : memoryMiBMax * 1_024 * 1_024,
        },
      })
    }
    case 'embedded': {
      const progress = hooks.onModelProgress
      const model = await resolveModel({ model: one.model, env: process.env, ...(progress === undefined ? {} : { onProgress: progress }) })
      const cache = cacheDirectory(process.env)
      models.push(markInUse(cache, model.path))
      const { id, lanes, laneTokens, threads, chunkTokens, copiesMsMax, flashAttention, extraBuffers, rowUnit, load, library, kvTypeK, kvTypeV, build, gpuLayers, publicPrefixes } = one
      const { answerSeconds, batchSecondsMax, startSecondsMax, memoryMiBMax } = one
      return new EmbeddedEngine({
        id, lanes, laneTokens, threads, chunkTokens, copiesMsMax, flashAttention, extraBuffers, rowUnit, load, kvTypeK, kvTypeV, build, gpuLayers, publicPrefixes, models: [model.name], modelPath: model.path, libraryDir: library,
        runtimeDir: config.dataDir, probeCachePath: join(cache, PROBES_FILE),
        limits: {
          leaseMs: Math.round(answerSeconds * 1_000), batchMsMax: batchSecondsMax * 1_000, startMsMax: startSecondsMax * 1_000,
          memoryBytesMax: memoryMiBMax === null ? null : memoryMiBMax * 1_024 * 1_024,
        },
      })
    }
  }
}

/** The digest of an image is the CRC32 of its file, whatever engine wrote it; null where the file cannot be read. */
async function fileDigest(path: string): Promise<string | null> {
  let crc = 0
  try {
    for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) crc = crc32(chunk as Buffer, crc)
  } catch {
    return null
  }
  return crc.toString(16).padStart(8, '0')
}
