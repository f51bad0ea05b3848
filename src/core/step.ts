/**
 * START HERE. `step(core, input, nowUs)` is the only door to the core: it decides, and returns what it decided as facts.
 * It is synchronous and total: any input, however wrong, gives facts or none; only a bug of ours throws. It reads the state and
 * writes nothing itself: each fact is applied by `apply.ts` as it is emitted, so a later decision sees the earlier one.
 *
 * Each input has its function in the file of its noun; after each, `followGraphs` carries what ended along the declared
 * graphs. Inputs of one moment make a turn: each is decided as it is taken, and `dispatch` looks once, when all are known,
 * whether a ready call can run.
 */
import { assert, unreachable } from './assert.ts'
import { finished, attemptFailed, hangUp, measured, measureFailed, paused, progress } from './call.ts'
import { cancelCall, cancelThread } from './cancel.ts'
import { deciding, type Deciding } from './deciding.ts'
import { dispatch } from './dispatch.ts'
import { commitEffect } from './effects.ts'
import { engineJoined, engineLost, restart } from './engine.ts'
import type { Logged } from './fact.ts'
import { reportGraph } from './graph/graph.ts'
import { followGraphs } from './graph/graph-follow.ts'
import type { Input } from './input.ts'
import { moveDone, moveFailed } from './kv/kv.ts'
import { malformed, refuseMalformed } from './malformed.ts'
import { cancelProgram, declareProgram, finishProgram } from './program.ts'
import { drainEngine, undrainEngine } from './drain.ts'
import { due } from './due.ts'
import { putToSleep } from './asleep/asleep.ts'
import type { CoreState } from './state.ts'
import { submit } from './submit.ts'
import type { Us } from './units.ts'

/** A turn of one input. */
export function step(core: CoreState, input: Input, nowUs: Us): Logged[] {
  const turn = openTurn(core, nowUs)
  return [...turn.take(input), ...turn.end()]
}

interface Turn {
  /** The facts of one input. */
  take(input: Input): Logged[]
  /** The facts of the scheduling cycle; nothing is taken afterwards. */
  end(): Logged[]
}

/** Nothing else may be decided, nor a state kept, until it has ended. */
export function openTurn(core: CoreState, nowUs: Us): Turn {
  assert(Number.isSafeInteger(nowUs), 'time is an integer of microseconds')
  let facts: Logged[] = []
  let ended = false
  // A clock that went back is a fault of the world: time stands still until it has caught up.
  const d = deciding(core, Math.max(nowUs, core.nowUs), (logged) => facts.push(logged))
  return {
    take(input) {
      assert(!ended, 'nothing is taken after the end of a turn')
      facts = []
      const wrong = malformed(input)
      if (wrong === null) decide(d, input)
      else refuseMalformed(d, input, wrong)
      followGraphs(d, facts)
      return facts
    },
    end() {
      facts = []
      ended = true
      dispatch(d)
      putToSleep(core, core.config.programsAwakeMax)
      return facts
    },
  }
}

function decide(d: Deciding, input: Input): void {
  switch (input.kind) {
    case 'submit': return submit(d, input)
    case 'measured': return measured(d, input)
    case 'measureFailed': return measureFailed(d, input)
    case 'declareProgram': return declareProgram(d, input)
    case 'finishProgram': return finishProgram(d, input)
    case 'cancelProgram': return cancelProgram(d, input)
    case 'cancelThread': return cancelThread(d, input)
    case 'cancelCall': return cancelCall(d, input)
    case 'reportGraph': return reportGraph(d, input)
    case 'commitEffect': return commitEffect(d, input)
    case 'hangUp': return hangUp(d, input)
    case 'progress': return progress(d, input)
    case 'paused': return paused(d, input)
    case 'finished': return finished(d, input)
    case 'attemptFailed': return attemptFailed(d, input)
    case 'moveDone': return moveDone(d, input)
    case 'moveFailed': return moveFailed(d, input)
    case 'engineJoined': return engineJoined(d, input)
    case 'engineLost': return engineLost(d, input)
    case 'drainEngine': return drainEngine(d, input)
    case 'undrainEngine': return undrainEngine(d, input)
    case 'due': return due(d, input)
    case 'restart': return restart(d, input)
    default: return unreachable(input)
  }
}
