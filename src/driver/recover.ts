/**
 * Owns the way back: the newest snapshot that is whole, and the facts after it replayed by `apply` alone, no policy run.
 * What comes after it is one `restart` input. The next snapshot is made the same way, from the log and not from the state
 * that serves.
 */
import { apply, emptyCore } from '../core/apply.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../core/config.ts'
import type { Logged } from '../core/fact.ts'
import { restoreSnapshot, takeSnapshot, type Snapshot } from '../core/snapshot.ts'
import { upcast } from '../core/upcast.ts'
import type { CoreState } from '../core/state.ts'
import type { FactLog } from './ports.ts'
import { Trace } from './trace.ts'

export interface Recovered {
  readonly core: CoreState
  readonly trace: Trace
  /** The fact that the snapshot ended with; 0 where the whole log was read. */
  readonly snapshotSeq: number
}

/** What is missing is on no disk of ours any more. */
class RecoveryError extends Error {
  readonly next = 'put back a copy of the data directory, or move it away to begin anew.'

  constructor(what: string) {
    super(what)
    this.name = 'RecoveryError'
  }
}

/** Throws InvariantError where a newer release wrote the log or it contradicts itself, RecoveryError where it has a hole. */
export function recover(config: CoreConfig, log: FactLog): Recovered {
  const core = fromSnapshot(config, log) ?? emptyCore(config)
  const snapshotSeq = core.seq
  const trace = new Trace()
  replay(core, log.read(snapshotSeq), (logged) => trace.note(core, logged))
  return { core, trace, snapshotSeq }
}

/** The state after a snapshot and these facts, as the next snapshot. Throws as `recover` does. */
export function nextSnapshot(base: Snapshot | null, facts: Iterable<Logged>): Snapshot {
  // Facts are replayed without a configuration, and a snapshot holds none.
  const core = base === null ? emptyCore(CORE_DEFAULTS) : restoreSnapshot(CORE_DEFAULTS, base)
  replay(core, facts, () => undefined)
  return takeSnapshot(core)
}

/** `applied` is told of each fact right after it was. */
function replay(core: CoreState, facts: Iterable<Logged>, applied: (logged: Logged) => void): void {
  for (const kept of facts) {
    if (kept.seq !== core.seq + 1) {
      throw new RecoveryError(`The log goes on with fact ${kept.seq} where fact ${core.seq + 1} must be, and no snapshot that can be read holds what is missing.`)
    }
    const logged = upcast(kept)
    apply(core, logged)
    applied(logged)
  }
}

function fromSnapshot(config: CoreConfig, log: FactLog): CoreState | null {
  for (const snapshot of log.snapshots()) return restoreSnapshot(config, snapshot)
  return null
}
