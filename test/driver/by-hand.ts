/** A driver whose clock, log and engine do only what a test tells them to. */
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import type { Fact, Logged } from '../../src/core/fact.ts'
import { engineId } from '../../src/core/ids.ts'
import type { Dump } from '../../src/driver/black-box.ts'
import { Driver } from '../../src/driver/driver.ts'
import type { EngineCommand, EngineSink, Ports } from '../../src/driver/ports.ts'
import { recover } from '../../src/driver/recover.ts'
import { LANES, SPEEDS } from '../core/world.ts'

interface Append { readonly facts: readonly Logged[]; readonly barrier: boolean; readonly durable: () => void }

export interface ByHand {
  readonly driver: Driver
  readonly commands: EngineCommand[]
  readonly shown: Fact['kind'][]
  readonly fatal: Error[]
  readonly dumps: Dump[]
  readonly bodies: ReadonlyMap<string, Uint8Array>
  sink(): EngineSink
  /** Runs what was put off to come soon, until nothing is. */
  turn(): Promise<void>
  /** All that was appended so far is on disk. */
  flush(): Promise<void>
}

export async function byHand(core: Partial<CoreConfig> = {}): Promise<ByHand> {
  const due: (() => void)[] = []
  const appends: Append[] = []
  const kept: Logged[] = []
  const commands: EngineCommand[] = []
  const fatal: Error[] = []
  const dumps: Dump[] = []
  let sink: EngineSink | null = null
  let fresh = 0
  const bodies = new Map<string, Uint8Array>()
  const ports: Ports = {
    clock: { nowUs: () => 1_000, wallOffsetUs: () => 0, at: () => () => undefined, soon: (call) => void due.push(call) },
    ids: { fresh: () => `id${(fresh += 1)}`, seed: () => 1 },
    log: {
      append: (facts, barrier, durable) => void appends.push({ facts, barrier, durable }), read: (after = 0) => kept.filter(({ seq }) => seq > after),
      snapshots: () => [], snapshot: () => undefined, nextReign: () => 1,
    },
    bodies: { put: (id, _tenant, bytes) => void bodies.set(id, bytes), get: (id) => bodies.get(id) ?? null, drop: (id) => void bodies.delete(id), keepOnly: () => undefined },
    images: { path: (image) => image, keep: () => undefined, drop: () => undefined, verify: () => Promise.resolve([]) },
    engines: [{
      id: engineId('e0'), open: (_reign, given) => void (sink = given), perform: (command) => void commands.push(command), close: () => Promise.resolve(),
      measure: () => Promise.resolve({ ok: true, prepared: new Uint8Array(), promptTokens: 60, matched: null, renderingWon: null }),
    }],
  }
  const config = { ...CORE_DEFAULTS, ...core }
  const onFatal = (error: Error, dump: () => Dump): void => {
    fatal.push(error)
    dumps.push(dump())
  }
  const driver = new Driver(ports, { checkEveryTurns: 1, onFatal, storeFailure: 'refuse', snapshotEveryFacts: 0 }, recover(config, ports.log))
  const shown: Fact['kind'][] = []
  driver.watch(({ fact }) => void shown.push(fact.kind))
  const turn = async (): Promise<void> => {
    for (let quiet = 0; quiet < 3; quiet += 1) {
      for (let call = due.shift(); call !== undefined; call = due.shift()) call()
      await Promise.resolve()
    }
  }
  const made: ByHand = {
    driver, commands, shown, fatal, dumps, bodies, turn,
    sink: () => sink as EngineSink,
    async flush() {
      for (let one = appends.shift(); one !== undefined; one = appends.shift()) {
        kept.push(...one.facts)
        one.durable()
      }
      await turn()
    },
  }
  await driver.start()
  made.sink().input({ kind: 'engineJoined', engine: engineId('e0'), reign: 1, capabilities: LANES, speeds: SPEEDS })
  await turn()
  await made.flush()
  return made
}
