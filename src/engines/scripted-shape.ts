/** Owns what a script's settings mean to a control plane: the capabilities and speeds the scripted engine declares. */
import type { Capabilities, EngineSpeeds } from '../core/state.ts'
import type { ScriptItem } from './script.ts'
import type { Script } from './script-file.ts'
import type { AttemptSpeeds } from './scripted-run.ts'

export function capabilitiesOf(script: Script): Capabilities {
  const memory = script.tokenise ? script.memory : null
  const holdsStates = memory !== null
  const residency = holdsStates && script.residency
  return {
    models: script.models,
    contextTokens: script.contextTokens,
    runningMax: script.runningMax,
    tokenise: script.tokenise,
    rank: holdsStates,
    preempt: script.preempt && holdsStates,
    cancel: true,
    memory,
    kvBytesPerToken: script.kvBytesPerToken,
    sharesBytes: false,
    copy: holdsStates,
    trim: holdsStates,
    offload: residency,
    onboard: residency,
    discard: holdsStates,
    exact: { answer: script.exact, because: 'the script says so' },
    replayByOrigin: holdsStates,
    imageKey: residency ? `scripted-1/${script.models.join('+')}` : null,
    progress: true,
    inventory: holdsStates,
  }
}

export const speedsOf = (script: Script): EngineSpeeds => ({
  prefillNsPerToken: nsPerToken(script.promptTokensPerSecond),
  decodeBaseNs: nsPerToken(script.tokensPerSecond),
  decodeRowNs: 0,
  copyOutNsPerToken: nsPerToken(script.copyOutTokensPerSecond),
  copyInNsPerToken: nsPerToken(script.copyInTokensPerSecond),
})

export const attemptSpeedsOf = (script: Script, item: ScriptItem): AttemptSpeeds => ({
  promptNs: nsPerToken(item.promptTokensPerSecond ?? script.promptTokensPerSecond),
  decodeNs: nsPerToken(item.tokensPerSecond ?? script.tokensPerSecond),
  latencyNs: Math.round((item.latencyMs ?? 0) * 1e6),
})

const nsPerToken = (perSecond: number): number => Math.max(1, Math.round(1e9 / perSecond))
