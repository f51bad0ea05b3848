/**
 * Owns what is told when a law breaks: the last inputs and the state before them, so that the breach can be seen again
 * away from the server. Inputs hold ids, counts and digests, names and reasons that a runtime gave, never what a model was
 * told or said.
 */
import { apply, emptyCore } from '../core/apply.ts'
import { InvariantError } from '../core/assert.ts'
import type { CoreConfig } from '../core/config.ts'
import type { Input } from '../core/input.ts'
import { checkInvariants } from '../core/invariants.ts'
import { nothingSeen } from '../core/invariants/law.ts'
import { restoreSnapshot, takeSnapshot, type Snapshot } from '../core/snapshot.ts'
import { openTurn } from '../core/step.ts'
import type { CoreState } from '../core/state.ts'
import { upcast } from '../core/upcast.ts'
import type { Us } from '../core/units.ts'
import type { FactLog } from './ports.ts'

/** Inputs kept, and what a report of a graph names counts as one each; between that and twice as much, so that dropping the oldest costs nothing. */
const WEIGHT_MAX = 4_096

/** Plain JSON. `inputs` is empty where the state before them can no longer be had: `snapshot` is then the state as it broke. */
export interface Dump {
  /** Of the broken law; 0: an assertion. */
  readonly law: number
  readonly why: string
  readonly config: CoreConfig
  /** Null: the empty state. */
  readonly snapshot: Omit<Snapshot, 'texts'> & { readonly texts: readonly string[] } | null
  readonly inputs: readonly Told[]
}

/** Inputs of one turn have one number. */
interface Told { readonly turn: number; readonly nowUs: Us; readonly input: Input }

export class BlackBox {
  readonly #inputs: (Told & { readonly seq: number })[] = []
  #weight = 0

  /** Just before the input is decided. Whole turns are dropped, and the newest stays, whatever it weighs. */
  note(core: Readonly<CoreState>, nowUs: Us, input: Input, turn: number): void {
    this.#inputs.push({ turn, nowUs, input, seq: core.seq })
    this.#weight += weightOf(input)
    if (this.#weight <= 2 * WEIGHT_MAX) return
    let dropped = 0
    for (const [index, old] of this.#inputs.entries()) {
      if (old.turn === turn) break
      if (this.#weight <= WEIGHT_MAX && old.turn !== this.#inputs[index - 1]?.turn) break
      this.#weight -= weightOf(old.input)
      dropped = index + 1
    }
    this.#inputs.splice(0, dropped)
  }

  dump(error: Error, core: Readonly<CoreState>, log: FactLog): Dump {
    const from = this.#inputs[0]?.seq ?? core.seq
    const before = stateAt(from, core.config, log)
    return {
      law: error instanceof InvariantError ? error.number : 0,
      why: error.message,
      config: core.config,
      snapshot: before === null ? plain(takeSnapshot(core)) : from === 0 ? null : plain(takeSnapshot(before)),
      inputs: before === null ? [] : this.#inputs.map(({ turn, nowUs, input }) => ({ turn, nowUs, input })),
    }
  }
}

/** Only a report of a graph is as large as its client makes it. */
function weightOf(input: Input): number {
  if (input.kind !== 'reportGraph') return 1
  const { forks, nodes, outcomes } = input
  return 1 + forks.length + outcomes.length + nodes.reduce((sum, { parents }) => sum + 1 + parents.length, 0)
}

const plain = (snapshot: Snapshot): Dump['snapshot'] => ({ ...snapshot, texts: [...snapshot.texts] })

/** The state after that fact, from what is durable; null where the log does not reach so far, or no longer does. */
function stateAt(seq: number, config: CoreConfig, log: FactLog): CoreState | null {
  let core = emptyCore(config)
  for (const snapshot of log.snapshots()) {
    if (snapshot.seq > seq) continue
    core = restoreSnapshot(config, snapshot)
    break
  }
  for (const kept of core.seq === seq ? [] : log.read(core.seq)) {
    if (kept.seq !== core.seq + 1) return null
    apply(core, upcast(kept))
    if (core.seq === seq) break
  }
  return core.seq === seq ? core : null
}

interface Seen { readonly law: number; readonly why: string; /** Counted from 1; 0: the state was broken before any. */ readonly input: number }

/** Decides the inputs of a dump again, and says where a law breaks first; null where none does. */
export function replayDump(dump: Dump): Seen | null {
  let at = 0
  try {
    const core = dump.snapshot === null ? emptyCore(dump.config) : restoreSnapshot(dump.config, dump.snapshot)
    const seen = nothingSeen()
    checkInvariants(core, seen)
    for (const inputs of turnsOf(dump)) {
      const turn = openTurn(core, (inputs[0] as Told).nowUs)
      for (const { input } of inputs) {
        at += 1
        turn.take(input)
      }
      turn.end()
      checkInvariants(core, seen)
    }
    return null
  } catch (error) {
    return { law: error instanceof InvariantError ? error.number : 0, why: error instanceof Error ? error.message : String(error), input: at }
  }
}

function turnsOf({ inputs }: Dump): Told[][] {
  const turns: Told[][] = []
  for (const told of inputs) {
    const last = turns.at(-1)
    if (last?.[0]?.turn === told.turn) last.push(told)
    else turns.push([told])
  }
  return turns
}
