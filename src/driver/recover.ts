/** Owns the way back: the log replayed by `apply` alone, no policy run. What comes after it is one `restart` input. */
import { apply, emptyCore } from '../core/apply.ts'
import type { CoreConfig } from '../core/config.ts'
import { upcast } from '../core/upcast.ts'
import type { CoreState } from '../core/state.ts'
import type { FactLog } from './ports.ts'
import type { Trace } from './trace.ts'

export function recover(config: CoreConfig, log: FactLog, trace: Trace): CoreState {
  const core = emptyCore(config)
  for (const kept of log.read()) {
    const logged = upcast(kept)
    apply(core, logged)
    trace.note(core, logged)
  }
  return core
}
