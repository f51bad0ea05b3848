/**
 * Owns the question "did this engine declare it?". An adapter asks before it acts, so that what was not declared is
 * refused by the name of the capability and never half done. What an engine can do is said by the adapter itself.
 */
import type { EngineCommand } from '../driver/ports.ts'
import type { Capabilities } from '../core/state.ts'

/** Name of the capability a command needs and the engine has not declared; null where nothing is missing. */
export function undeclared(capabilities: Capabilities, command: EngineCommand): keyof Capabilities | null {
  switch (command.kind) {
    case 'start':
      return command.keepTokens > 0 && capabilities.memory === null ? 'memory' : null
    case 'order':
      return capabilities.rank ? null : 'rank'
    case 'pause':
      return capabilities.preempt ? null : 'preempt'
    default:
      return capabilities[command.kind] ? null : command.kind
  }
}
