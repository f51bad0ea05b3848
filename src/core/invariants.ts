/**
 * Owns the door to the laws of ARCHITECTURE.md, by their numbers; each group has a file in `invariants/`. Tests check them
 * after each step, production samples; a breach stops the process with its number.
 *
 * Not of one state: what only a sequence of facts can break is in `invariants/history.ts`, waiting (13) in
 * `invariants/waiting.ts`. Laws 4 and 10 concern tokens, which the core never sees: they are held by the simulator and
 * by the tests of the engine.
 */
import { allAwake } from './asleep/asleep.ts'
import { checkCalls } from './invariants/calls.ts'
import { checkEffects } from './invariants/effects.ts'
import { checkGraphs } from './invariants/graphs.ts'
import { checkIdentity } from './invariants/identity.ts'
import { checkIndexes } from './invariants/indexes.ts'
import { law, type Seen } from './invariants/law.ts'
import { checkLimits } from './invariants/limits.ts'
import { checkMemory } from './invariants/memory.ts'
import { checkPrograms } from './invariants/programs.ts'
import { checkResidence } from './invariants/residence.ts'
import { checkTurns } from './invariants/turns.ts'
import type { CoreState } from './state.ts'

/** Throws InvariantError with the number of the first law that is broken. Linear in what is kept. */
export function checkInvariants(live: Readonly<CoreState>, seen: Seen): void {
  const core = allAwake(live)
  law(14, live.threads.size === core.threads.size, () => `${live.threads.size} threads are kept, programs know ${core.threads.size}`)
  checkCalls(core)
  checkPrograms(core, seen)
  checkResidence(core)
  checkMemory(core)
  checkGraphs(core)
  checkLimits(core, seen)
  checkEffects(core)
  checkIndexes(core)
  checkIdentity(core)
  checkTurns(core)
  law(15, core.reign >= seen.reign, () => `the reign went from ${seen.reign} to ${core.reign}`)
  seen.reign = core.reign
}
