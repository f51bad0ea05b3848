/**
 * Owns what an operator may set: one YAML file, `${NAME}` from the environment, and flags over both, read once by one
 * schema into one frozen object. An unknown key is refused by name, and every fault is told with its line.
 *
 * In the file lengths are in seconds or milliseconds and sizes in MiB, as the key's last word says; here they are in
 * the units of the core. Keys of tenants are kept as digests only. Leaves to `main.ts` what is built from it.
 */
import { createHash } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { dirname, resolve } from 'node:path'
import { isMap, isNode, isPair, isScalar, isSeq, LineCounter, parseDocument, Scalar, visit, type Document } from 'yaml'
import { z } from 'zod'
import { CORE_DEFAULTS, type CoreConfig, ORDER_NAMES, PLACEMENT_NAMES, RESIDENCY_NAMES } from './core/config.ts'
import { SECOND_US, seconds, type Us } from './core/units.ts'
import { CORES } from './cores.ts'
import { SECRET_CHARS_MIN } from './protocol/handshake.ts'
import { fieldName, schemaFaults } from './protocol/schema-fault.ts'

const MEBIBYTE = 1024 * 1024
const PUBLIC_PREFIXES_MAX = 16
const PUBLIC_PREFIX_CHARS_MAX = 30_000
/** A key shorter than this can be guessed. */
const KEY_CHARS_MIN = 8

// ---------------------------------------------------------------- the schema

const count = z.int().min(1)
const amount = z.number().min(0)
const NAME = /^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$/
const name = z.string().regex(NAME, 'expected a name of letters, digits, ".", "_" and "-", at most 64')

const inSeconds = (usDefault: Us) => z.number().min(0).default(usDefault / SECOND_US).transform(seconds)
const inMebibytes = (bytesDefault: number) =>
  amount.default(bytesDefault / MEBIBYTE).transform((mebibytes) => Math.round(mebibytes * MEBIBYTE))

const listen = z.strictObject({
  host: z.string().min(1).default('127.0.0.1'),
  port: z.int().min(0).max(65_535).default(7600),
})

const tenant = z.strictObject({
  name,
  key: z.string().min(KEY_CHARS_MIN).nullable().default(null),
  /** Hex; for a file that should not hold the key itself. */
  keySha256: z.string().regex(/^[0-9a-f]{64}$/i, 'expected 64 hexadecimal digits').nullable().default(null),
  class: z.enum(['interactive', 'default', 'batch']).default('default'),
  /** Its share beside the other tenants of its class that wait, in proportion. */
  weight: z.int().min(1).max(1_000).default(1),
  /** From a program's arrival; null: none. */
  deadlineSeconds: z.number().gt(0).nullable().default(null),
  /** A runtime may state a program's deadline when it declares it; one sooner than `deadlineSeconds` counts as that. */
  statesDeadlines: z.boolean().default(false),
  /** Null: `core.exactResume`. */
  exactResume: z.boolean().nullable().default(null),
})
  .refine(({ key, keySha256 }) => (key === null) !== (keySha256 === null), { path: ['key'], message: 'give either key or keySha256' })
  .transform(({ key, keySha256, deadlineSeconds, ...rest }) => ({
    ...rest,
    keySha256: key === null ? (keySha256 ?? '').toLowerCase() : createHash('sha256').update(key).digest('hex'),
    deadlineUs: deadlineSeconds === null ? null : seconds(deadlineSeconds),
  }))

const KV_TYPES = ['f16', 'f32', 'bf16', 'q8_0', 'q5_1', 'q5_0', 'q4_1', 'q4_0', 'iq4_nl'] as const
const PLAIN_KV_TYPES: readonly string[] = KV_TYPES.slice(0, 3)

/** An operating system takes so much in one word of a command line, and no NUL. */
const publicText = z.string().min(1).max(PUBLIC_PREFIX_CHARS_MAX).regex(/^[^\0]*$/, 'expected a text without NUL')

/** Two batches of 64 rows: a remainder borrows from the chunk before it. */
const EXACT_ATTENTION_CHUNK_MIN = 128

const embedded = z.strictObject({
  id: name,
  kind: z.literal('embedded'),
  /** A path to a GGUF file, `default`, or `tiny`; served under the model's own name: `tiny` is `entracte-tiny`. */
  model: z.string().min(1).default('default'),
  /** Shared libraries of llama.cpp; null: those that were installed with us. */
  library: z.string().min(1).nullable().default(null),
  lanes: z.int().min(1).max(256).default(8),
  laneTokens: z.int().min(256).default(2_048),
  /** The most; while other work needs the cores it takes fewer by itself. Lower where cores are to stay free always. */
  threads: z.int().min(1).max(512).default(CORES),
  chunkTokens: z.int().min(4).max(4_096).default(128),
  /** Of copies of States between two batches, while somebody runs; at it the next copy waits for a batch. One is never cut. */
  copiesMsMax: z.int().min(0).max(60_000).default(20),
  /** System texts: the beginning of a prompt with one of them is computed once for all tenants. */
  publicPrefixes: z.array(publicText).max(PUBLIC_PREFIXES_MAX).default([]),
  /** Faster. `true`: as it comes, and not exact. `exact`: prompts in batches of 64 rows and more, and a row that runs alone on one thread. */
  flashAttention: z.union([z.boolean(), z.literal('exact')]).default(false),
  /** Weights repacked for the CPU: faster, and for some quantisations not exact. */
  extraBuffers: z.boolean().default(true),
  /** Rows of a lane in a batch: as they come, at least two, or a multiple of four. Slower, and for some quantisations needed to be exact. */
  rowUnit: z.literal([1, 2, 4]).default(1),
  /** How weights come into memory: the library's choice, mapped from the file, mapped and locked there, or read whole. */
  load: z.enum(['auto', 'map', 'lock', 'read']).default('auto'),
  /** How K and V are kept. In blocks (all but the first three) they take less memory; V in blocks needs flash attention. */
  kvTypeK: z.enum(KV_TYPES).default('f16'),
  kvTypeV: z.enum(KV_TYPES).default('f16'),
  /** Which build of the library: the CPU's; one for a GPU that is installed beside it (`auto`: the best there is), or the CPU where it is not. */
  build: z.enum(['auto', 'cpu', 'cuda', 'vulkan', 'metal']).default('cpu'),
  /** Layers that a GPU computes; null: all, where the build finds one. */
  gpuLayers: z.int().min(0).max(10_000).nullable().default(null),
  /** Its process is taken for hanging, and ended, where it answers nothing for a third longer than this. */
  answerSeconds: z.number().min(0.3).default(10),
  /** A batch that takes longer will not end: its process is. A chunk of a prompt is one batch. */
  batchSecondsMax: z.number().gt(0).default(120),
  /** From its start to its first word, the model's loading included. */
  startSecondsMax: z.number().gt(0).default(180),
  /** Resident memory of its process, the weights included; above it the process is ended and started again. Null: no limit. */
  memoryMiBMax: z.number().gt(0).nullable().default(null),
}).superRefine(({ kvTypeV, flashAttention, rowUnit, chunkTokens, build, gpuLayers }, context) => {
  const wrong = (key: string, message: string): void => context.addIssue({ code: 'custom', path: [key], message })
  if (flashAttention === 'exact' && rowUnit !== 1) wrong('rowUnit', `is ${rowUnit}; with flashAttention: exact it must be 1`)
  if (flashAttention === 'exact' && chunkTokens < EXACT_ATTENTION_CHUNK_MIN) {
    wrong('chunkTokens', `is ${chunkTokens}; with flashAttention: exact it must be at least ${EXACT_ATTENTION_CHUNK_MIN}`)
  }
  if (!flashAttention && !PLAIN_KV_TYPES.includes(kvTypeV)) wrong('kvTypeV', `is ${kvTypeV}, which needs flashAttention: true`)
  if (build === 'cpu' && (gpuLayers ?? 0) > 0) wrong('gpuLayers', `is ${gpuLayers}, and build is cpu: set build to auto, cuda, vulkan or metal`)
})

/** An engine that `entracte engine` serves on another machine, with the settings it has there. */
const remote = z.strictObject({
  id: name,
  kind: z.literal('remote'),
  host: z.string().min(1),
  port: z.int().min(1).max(65_535).default(7601),
  /** The name that its model is asked for by. */
  model: z.string().min(1),
  /** What both sides know; `secretFile` holds it on a line of its own. */
  secret: z.string().min(SECRET_CHARS_MIN).nullable().default(null),
  secretFile: z.string().min(1).nullable().default(null),
  /** `ca`: a PEM file; null: the authorities of the system. */
  tls: z.strictObject({ ca: z.string().min(1).nullable().default(null) }).nullable().default(null),
  /** Without TLS, prompts and answers can be read on the way: beyond loopback that has to be said. */
  inClear: z.boolean().default(false),
  answerSeconds: z.number().min(0.3).default(10),
  batchSecondsMax: z.number().gt(0).default(120),
  memoryMiBMax: z.number().gt(0).nullable().default(null),
}).superRefine(({ secret, secretFile, tls, inClear, host }, context) => {
  if ((secret === null) === (secretFile === null)) context.addIssue({ code: 'custom', path: ['secret'], message: 'give either secret or secretFile' })
  if (tls === null && !inClear && !isLoopback(host)) {
    context.addIssue({ code: 'custom', path: ['tls'], message: `is not given, and ${host} is another machine: set tls, or say inClear: true` })
  }
})

const scripted = z.strictObject({
  id: name,
  kind: z.literal('scripted'),
  /** The script itself, or a YAML file that holds it; what it may say is the adapter's to check. */
  script: z.union([z.string().min(1), z.array(z.unknown()), z.record(z.string(), z.unknown())]),
})

const openai = z.strictObject({
  id: name,
  kind: z.literal('openai'),
  baseUrl: z.url({ protocol: /^https?$/ }),
  apiKey: z.string().min(1).nullable().default(null),
  model: z.string().min(1),
  runningMax: count.default(16),
  contextTokens: count.default(8_192),
})

const engine = z.discriminatedUnion('kind', [embedded, remote, scripted, openai])

const limits = z.strictObject({
  /** Longest request body; a longer one is refused with 413. */
  bodyMiBMax: amount.default(8),
  /** A waiting stream gets a comment this often. */
  keepAliveMs: count.default(5_000),
  /** A call that has shown nothing for this long is given up with 503; its retry finds its place. */
  queueHoldSeconds: z.number().gt(0).default(600),
  /** Unsent bytes of one stream; at it the call's parts wait for their reader. */
  streamBufferKiBMax: count.default(64),
  /** A reader that takes nothing for this long is hung up. */
  slowReaderSeconds: z.number().gt(0).default(120),
  /** A request that has not arrived whole by then is ended. */
  requestSecondsMax: z.number().gt(0).default(60),
}).transform((from) => ({
  bodyBytesMax: Math.round(from.bodyMiBMax * MEBIBYTE),
  keepAliveMs: from.keepAliveMs,
  queueHoldMs: Math.round(from.queueHoldSeconds * 1_000),
  streamBufferBytesMax: from.streamBufferKiBMax * 1_024,
  slowReaderMs: Math.round(from.slowReaderSeconds * 1_000),
  requestMsMax: Math.round(from.requestSecondsMax * 1_000),
}))

const d = CORE_DEFAULTS
const share = (weight: number) => z.int().min(1).max(1_000).default(weight)
const core = z.strictObject({
  mode: z.enum(['schedule', 'observe']).default(d.mode),
  order: z.enum(ORDER_NAMES).default(d.order),
  residency: z.enum(RESIDENCY_NAMES)
    .default(d.residency),
  placement: z.enum(PLACEMENT_NAMES).default(d.placement),
  /** In place of the three above: an order, a residency and a placement that agree. */
  joint: z.enum(['entracte', 'engine-own']).nullable().default(d.joint),
  exactResume: z.boolean().default(d.exactResume),
  hostMiBMax: inMebibytes(d.hostBytesMax),
  grantTokens: count.default(d.grantTokens),
  callsOpenMax: count.default(d.callsOpenMax),
  tenantCallsOpenMax: count.default(d.tenantCallsOpenMax),
  callsPerProgramMax: count.default(d.callsPerProgramMax),
  toolClassesMax: count.default(d.toolClassesMax),
  kindsPerTenantMax: count.default(d.kindsPerTenantMax),
  programsMax: count.default(d.programsMax),
  programsAwakeMax: count.default(d.programsAwakeMax),
  tenantProgramsMax: count.default(d.tenantProgramsMax),
  programDepthMax: count.default(d.programDepthMax),
  nodesPerProgramMax: count.default(d.nodesPerProgramMax),
  edgesPerProgramMax: count.default(d.edgesPerProgramMax),
  threadsPerProgramMax: count.default(d.threadsPerProgramMax),
  sessionStatesMax: z.int().min(0).default(d.sessionStatesMax),
  /** What each class gets beside the others that wait, in proportion. */
  bandWeights: z.strictObject({
    interactive: share(d.bandWeights.interactive), default: share(d.bandWeights.default), batch: share(d.bandWeights.batch),
  }).prefault({}),
  /** All of an engine's device memory held for a second, in millionths of an engine-second, as tenants are charged. */
  deviceSecondMicro: z.int().min(0).default(d.deviceSecondMicro),
  preemptGapSeconds: inSeconds(d.preemptGapUs),
  victimsMax: count.default(d.victimsMax),
  memoryWaitersMax: count.default(d.memoryWaitersMax),
  dispatchWindow: count.default(d.dispatchWindow),
  placementEnginesMax: count.default(d.placementEnginesMax),
  placementGainSeconds: inSeconds(d.placementGainUs),
  preemptGainSeconds: inSeconds(d.preemptGainUs),
  preemptionRestSeconds: inSeconds(d.preemptionRestUs),
  reserveAfterSeconds: inSeconds(d.reserveAfterUs),
  preemptionsMax: z.int().min(0).default(d.preemptionsMax),
  attemptsMax: count.default(d.attemptsMax),
  agingSeconds: inSeconds(d.agingUs),
  boostConfidencePpmMin: z.int().min(0).max(1_000_000).default(d.boostConfidencePpmMin),
  boostSharePpm: z.int().min(0).max(1_000_000).default(d.boostSharePpm),
  boostBurstSeconds: inSeconds(d.boostBurstUs),
  boostsOpenMax: z.int().min(0).default(d.boostsOpenMax),
  boostRetrySeconds: z.number().min(0.01).default(d.boostRetryUs / SECOND_US).transform(seconds),
  humanTools: z.array(z.string().min(1)).default([...d.humanTools]),
  toolEffects: z.record(z.string().min(1), z.enum(['read', 'idempotent', 'irreversible'])).default({ ...d.toolEffects }),
  programIdleSeconds: inSeconds(d.programIdleUs),
  interruptMaxSeconds: inSeconds(d.interruptMaxUs),
  sessionRetentionSeconds: inSeconds(d.sessionRetentionUs),
  levelQuantumSeconds: inSeconds(d.levelQuantumUs),
  levelCount: count.default(d.levelCount),
  promoteRatio: count.default(d.promoteRatio),
  idleMemorySecondMicro: z.int().min(0).default(d.idleMemorySecondMicro),
  hostMebibyteSecondMicro: z.int().min(0).default(d.hostMebibyteSecondMicro),
}).transform((from): CoreConfig => {
  const { preemptGapSeconds, hostMiBMax, programIdleSeconds, interruptMaxSeconds, sessionRetentionSeconds, levelQuantumSeconds, placementGainSeconds, preemptGainSeconds, preemptionRestSeconds, reserveAfterSeconds, agingSeconds, boostBurstSeconds, boostRetrySeconds, ...rest } = from
  return {
    ...rest,
    // Named with the tenants.
    tenantWeights: d.tenantWeights,
    preemptGapUs: preemptGapSeconds,
    hostBytesMax: hostMiBMax,
    programIdleUs: programIdleSeconds,
    interruptMaxUs: interruptMaxSeconds,
    sessionRetentionUs: sessionRetentionSeconds,
    placementGainUs: placementGainSeconds,
    levelQuantumUs: levelQuantumSeconds,
    preemptGainUs: preemptGainSeconds,
    preemptionRestUs: preemptionRestSeconds,
    reserveAfterUs: reserveAfterSeconds,
    agingUs: agingSeconds,
    boostBurstUs: boostBurstSeconds,
    boostRetryUs: boostRetrySeconds,
  }
})

const schema = z.strictObject({
  listen: listen.prefault({}),
  dataDir: z.string().min(1).default('.entracte'),
  /** Null: in memory-backed storage where it holds the host tier, else below dataDir. */
  imagesDir: z.string().min(1).nullable().default(null),
  logLevel: z.enum(['silent', 'error', 'warn', 'info', 'debug']).default('info'),
  /** Null: /metrics answers on loopback only. Else it wants this as a bearer token. */
  metricsKey: z.string().min(KEY_CHARS_MIN).nullable().default(null),
  /** Wanted as a bearer token below /v1/admin. Null: it answers on a machine that serves only itself, and not where there are tenants. */
  adminKey: z.string().min(KEY_CHARS_MIN).nullable().default(null),
  /** None: a single tenant `local`, on loopback only. */
  tenants: z.array(tenant).default([]),
  engines: z.array(engine).min(1).prefault([{ id: 'local', kind: 'embedded' }]),
  core: core.prefault({}),
  limits: limits.prefault({}),
  /** Facts between two snapshots, from which a start goes on instead of from the first fact; made beside, for that time with the state's memory once more; 0: none is made. */
  snapshotEveryFacts: z.int().min(0).default(100_000),
  /** Facts that both kept snapshots hold stay this long all the same. */
  logRetentionSeconds: z.number().min(0).default(604_800),
  /** When the store cannot write: calls pass through unscheduled, or are refused. */
  storeFailure: z.enum(['pass', 'refuse']).default('pass'),
}).superRefine((from, context) => {
  const fault = (path: PropertyKey[], message: string): void => context.addIssue({ code: 'custom', path, message })
  for (const [field, key] of [['tenants', 'name'], ['tenants', 'keySha256'], ['engines', 'id']] as const) {
    for (const index of repeated(from[field].map((one) => (one as unknown as Record<string, unknown>)[key]))) {
      fault([field, index, key], 'is given twice')
    }
  }
  if (from.tenants.length === 0 && !isLoopback(from.listen.host)) {
    fault(['listen', 'host'], `is ${from.listen.host}, which other machines can reach, and no tenants are configured: `
      + 'add tenants with keys, or listen on 127.0.0.1')
  }
})

type DeepReadonly<T> = T extends object ? { readonly [K in keyof T]: DeepReadonly<T[K]> } : T

export type Config = DeepReadonly<z.output<typeof schema>>
export type EngineConfig = Config['engines'][number]

function repeated(values: readonly unknown[]): readonly number[] {
  return values.flatMap((value, index) => (values.indexOf(value) < index ? [index] : []))
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(host)
}

// ---------------------------------------------------------------- reading

type Environment = Readonly<Record<string, string | undefined>>

/** What a file says, as plain data of the same shape as the file; flags come in it too. */
export type RawConfig = { readonly [key: string]: unknown }

/** Every fault found, each with its place; the message holds them all. */
export class ConfigError extends Error {
  readonly faults: readonly string[]
  constructor(faults: readonly string[]) {
    super(`the configuration is not valid:\n${faults.map((fault) => `  ${fault}`).join('\n')}`)
    this.name = 'ConfigError'
    this.faults = faults
  }
}

export const defaultConfig = (flags: RawConfig = {}): Config => loadConfig(null, {}, flags)

/**
 * Throws ConfigError. Relative paths are meant from the file's folder; those of flags, or without a file, from the
 * current one.
 */
export function loadConfig(path: string | null, env: Environment, flags: RawConfig = {}): Config {
  if (path === null) return check({}, flags, null, process.cwd())
  return readConfig(textOf(path), path, env, flags)
}

/** The same for text at hand; `path` names it in faults. */
export function readConfig(text: string, path: string, env: Environment, flags: RawConfig = {}): Config {
  const file = parseYaml(text, path, env)
  if (file.value !== null && !isRecord(file.value)) {
    throw new ConfigError([`${path}:1: expected keys and values, such as "listen:"`])
  }
  return check(file.value ?? {}, flags, file.placeOf, dirname(resolve(path)))
}

type PlaceOf = (path: readonly PropertyKey[]) => string

function check(fromFile: RawConfig, flags: RawConfig, placeOf: PlaceOf | null, folder: string): Config {
  const parsed = schema.safeParse(merge(fromFile, flags))
  if (!parsed.success) {
    throw new ConfigError(schemaFaults(parsed.error).map(({ path, text }) => {
      const place = placeOf === null || has(flags, path) ? 'command line' : placeOf(path)
      return `${place}: ${fieldName(path)} ${text}`
    }))
  }
  const folderOf = (...path: readonly string[]): string => (has(flags, path) ? process.cwd() : folder)
  const dataDir = resolve(folderOf('dataDir'), parsed.data.dataDir)
  const images = parsed.data.imagesDir
  return deepFreeze({
    ...parsed.data,
    dataDir,
    imagesDir: images === null ? null : resolve(folderOf('imagesDir'), images),
    core: { ...parsed.data.core, tenantWeights: Object.fromEntries(parsed.data.tenants.map((one) => [one.name, one.weight])) },
    engines: parsed.data.engines.map((one) => withPaths(one, folderOf('engines'))),
  })
}

function withPaths(one: z.output<typeof engine>, folder: string): z.output<typeof engine> {
  if (one.kind === 'embedded') {
    const { model, library } = one
    return {
      ...one,
      model: isPath(model) ? resolve(folder, model) : model,
      library: library === null ? null : resolve(folder, library),
    }
  }
  if (one.kind === 'remote') {
    const { secretFile, tls } = one
    const secret = secretFile === null ? one.secret : textOf(resolve(folder, secretFile)).trim()
    if ((secret ?? '').length < SECRET_CHARS_MIN) throw new ConfigError([`${secretFile ?? one.id}: the secret has fewer than ${SECRET_CHARS_MIN} characters`])
    return { ...one, secret, tls: tls?.ca == null ? tls : { ca: textOf(resolve(folder, tls.ca)) } }
  }
  if (one.kind !== 'scripted' || typeof one.script !== 'string') return one
  const path = resolve(folder, one.script)
  const script = parseYaml(textOf(path), path, {}).value
  if (!Array.isArray(script) && !isRecord(script)) {
    throw new ConfigError([`${path}:1: expected a script: a list, or keys and values`])
  }
  return { ...one, script }
}

const isPath = (model: string): boolean => /[/\\]|\.gguf$/.test(model)

function textOf(path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    throw new ConfigError([`${path}: cannot be read (${error instanceof Error ? error.message : String(error)})`])
  }
}

const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Flags win key by key; a list is replaced whole. */
function merge(below: RawConfig, above: RawConfig): RawConfig {
  const merged: Record<string, unknown> = { ...below }
  for (const [key, value] of Object.entries(above)) {
    if (value === undefined) continue
    const under = merged[key]
    merged[key] = isRecord(under) && isRecord(value) ? merge(under, value) : value
  }
  return merged
}

function has(flags: unknown, path: readonly PropertyKey[]): boolean {
  if (path.length === 0) return true
  const [key, ...rest] = path
  if (typeof flags !== 'object' || flags === null || key === undefined) return false
  const value = (flags as Record<PropertyKey, unknown>)[key]
  return Object.hasOwn(flags, key) && value !== undefined && has(value, rest)
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value
  for (const inner of Object.values(value)) deepFreeze(inner)
  return Object.freeze(value)
}

// ---------------------------------------------------------------- YAML, with its lines

interface ParsedYaml { readonly value: unknown; readonly placeOf: PlaceOf }

function parseYaml(text: string, path: string, env: Environment): ParsedYaml {
  const lines = new LineCounter()
  const document = parseDocument(text, { lineCounter: lines })
  const place = (offset: number): string => `${path}:${lines.linePos(offset).line}`
  // The first is what its author did; those after it follow from it.
  const [broken] = document.errors
  if (broken !== undefined) {
    const [what = ''] = broken.message.split('\n')
    throw new ConfigError([`${place(broken.pos[0])}: ${what.replace(/ at line \d+, column \d+:?$/, '')}`])
  }
  const faults: string[] = []
  visit(document, {
    Scalar: (key, node) => {
      if (key === 'key') return
      const { unset } = interpolate(node, env)
      const at = place(node.range?.[0] ?? 0)
      for (const missing of unset) {
        faults.push(`${at}: the environment has no ${missing}; set it, or write \${${missing}:-default}`)
      }
    },
  })
  if (faults.length > 0) throw new ConfigError(faults)
  return { value: document.toJS() as unknown, placeOf: (at) => place(offsetOf(document, at)) }
}

const VARIABLE = /(\$?)\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}/g

/** In values only, so that what a variable holds cannot change the structure. `$${NAME}` stays as `${NAME}`. */
function interpolate(node: Scalar, env: Environment): { readonly unset: readonly string[] } {
  const unset: string[] = []
  if (typeof node.value !== 'string' || !node.value.includes('${')) return { unset }
  const text = node.value.replace(VARIABLE, (whole, escape: string, variable: string, otherwise?: string) => {
    if (escape !== '') return whole.slice(1)
    const value = env[variable] ?? otherwise
    if (value === undefined) unset.push(variable)
    return value ?? ''
  })
  node.value = node.type === Scalar.PLAIN ? plainValue(text) : text
  return { unset }
}

/** An unquoted value is a number or a boolean where it looks like one, as if it stood there. */
function plainValue(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true'
  return /^-?(0|[1-9]\d{0,14})(\.\d+)?$/.test(text) ? Number(text) : text
}

/** Of the node at the path, or of the nearest above it that the file has; of the key where the path ends in one. */
function offsetOf(document: Document.Parsed, path: readonly PropertyKey[]): number {
  let node: unknown = document.contents
  let offset = 0
  for (const key of path) {
    const pair = isMap(node) ? node.items.find((item) => isScalar(item.key) && item.key.value === key) : undefined
    const item: unknown = isSeq(node) && typeof key === 'number' ? node.items[key] : pair
    if (item === undefined) break
    const at = isPair(item) ? item.key : item
    if (isNode(at) && at.range) offset = at.range[0]
    node = isPair(item) ? item.value : item
  }
  return offset
}
