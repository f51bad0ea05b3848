/**
 * Owns the laws of where a State is and whose it is: its bytes are where its residence says, it is in one place except
 * while it moves, and a move that did not end changes no owner (5); its owner knows it, and nobody's State is kept (9);
 * only as it was committed is it for whoever continues it (10).
 */
import { must } from '../assert.ts'
import { isOverStage } from '../call-read.ts'
import { stateTokens } from '../kv/kv-read.ts'
import type { CoreState, State } from '../state.ts'
import { law } from './law.ts'

export function checkResidence(core: Readonly<CoreState>): void {
  for (const state of core.states.values()) {
    checkPlace(core, state)
    checkPlain(core, state)
    checkOwner(core, state)
  }
  for (const call of core.calls.values()) {
    if (call.stage.kind !== 'running' && call.stage.kind !== 'pausing' && call.stage.kind !== 'resuming') continue
    const id = must(core.threads, call.thread).state
    const residence = id === null ? null : must(core.states, id).residence
    const its = call.stage.kind === 'resuming' ? residence?.kind === 'moving' && residence.move === call.stage.move
      : residence?.kind === 'active' && residence.call === call.id && residence.engine === call.stage.engine
    law(5, its, () => `${call.id} is ${call.stage.kind} and its State is ${residence?.kind ?? 'nowhere'}`)
  }
  for (const move of core.moves.values()) {
    const residence = core.states.get(move.state)?.residence
    law(5, residence?.kind === 'moving' && residence.move === move.id, () => `${move.id} moves ${move.state}, which is ${residence?.kind ?? 'forgotten'}`)
    law(5, move.from !== move.to, () => `${move.id} goes nowhere`)
  }
}

function checkPlace(core: Readonly<CoreState>, state: State): void {
  const { residence } = state
  const move = residence.kind === 'moving' ? must(core.moves, residence.move) : null
  const there = residence.kind === 'active' ? state.device?.engine === residence.engine
    : residence.kind === 'suspended' ? state[residence.tier] !== null
    : move !== null ? state[move.from] !== null
    : state.device === null && state.host === null
  law(5, there, () => `${state.id} is ${residence.kind} and its bytes are elsewhere`)
  law(5, state.device === null || state.host === null, () => `${state.id} is kept twice, on device and on host`)
  law(5, move === null || move.from === 'host' || move.engine === state.device?.engine, () => `${state.id} is copied from an engine that does not have it`)
  if (residence.kind === 'active') {
    const { stage } = must(core.calls, residence.call)
    law(5, stage.kind === 'running' || stage.kind === 'pausing', () => `${state.id} is active for ${residence.call}, which is ${stage.kind}`)
  }
  const has = stateTokens(state)
  law(5, state.device === null || residence.kind === 'moving' || state.device.tokens <= has, () => `${state.id} holds more on device than it has`)
  law(5, state.host === null || residence.kind === 'moving' || state.host.tokens <= has, () => `${state.id} holds more on host than it has`)
}

/** What was fed otherwise than it was committed serves the call that may have it so, and nobody after it. */
function checkPlain(core: Readonly<CoreState>, { id, plainFor, residence }: State): void {
  if (plainFor === undefined || residence.kind === 'moving') return
  const stage = core.calls.get(plainFor)?.stage
  const goesOn = stage !== undefined && stage.kind !== 'detached' && !isOverStage(stage)
  law(10, goesOn && (residence.kind !== 'active' || residence.call === plainFor), () => `${id} was fed again plainly for ${plainFor}, which is ${stage?.kind ?? 'forgotten'}`)
}

function checkOwner(core: Readonly<CoreState>, state: State): void {
  const { owner } = state
  switch (owner.kind) {
    case 'thread': {
      const thread = core.threads.get(owner.thread)
      law(9, thread?.state === state.id, () => `${state.id} is owned by a thread that does not know it`)
      return
    }
    case 'session': {
      const known = core.sessions.get(owner.session)?.states.filter((id) => id === state.id).length ?? 0
      law(9, known === 1, () => `${state.id} is a prefix its session knows ${known} times`)
      law(9, state.residence.kind !== 'active', () => `${state.id} is a prefix and somebody runs on it`)
      return
    }
    case 'nobody':
      law(9, state.residence.kind === 'moving', () => `${state.id} belongs to nobody and is kept`)
  }
}
