/** The whole state as one text, the same for equal states: maps and sets as lists in their order, the configuration left out. */
import type { CoreState } from '../../src/core/state.ts'

export function stateText({ config: _config, ...core }: CoreState): string {
  return JSON.stringify(core, (_key, value: unknown) =>
    value instanceof Map ? { map: [...value] } : value instanceof Set ? { set: [...value] } : value)
}
