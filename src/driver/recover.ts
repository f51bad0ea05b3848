/** Owns the way back: the log replayed by `apply` alone, no policy run. What comes after it is one `restart` input. */
import { apply, emptyCore } from '../core/apply.ts'
import type { CoreConfig } from '../core/config.ts'
import { upcast } from '../core/upcast.ts'
import type { CoreState } from '../core/state.ts'
import type { FactLog } from './ports.ts'
import { Trace } from './trace.ts'

export interface Recovered {
  readonly core: CoreState
  readonly trace: Trace
}

/** Throws InvariantError where the log was written by a newer release or contradicts itself. */
export function recover(config: CoreConfig, log: FactLog): Recovered {
  const core = emptyCore(config)
  const trace = new Trace()
  for (const kept of log.read()) {
    const logged = upcast(kept)
    apply(core, logged)
    trace.note(core, logged)
  }
  return { core, trace }
}
