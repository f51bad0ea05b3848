/**
 * Owns made-up lives of programs for benches of what is kept of them: each submits, is measured, runs, calls a tool and
 * waits, as often as it is told, through the real core, so that the facts are those of a real log in kind and number.
 * One engine of blocks without end runs them all, and what it held is discarded while a tool runs. Nothing here is timed, and nothing is drawn.
 */
import { emptyCore } from '../src/core/apply.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../src/core/config.ts'
import type { Logged } from '../src/core/fact.ts'
import { bodyId, callId, engineId, tenantId, type CallId } from '../src/core/ids.ts'
import type { AttemptReport, FromAttempt, Input } from '../src/core/input.ts'
import { emptyLedger, type Capabilities, type CoreState, type EngineSpeeds } from '../src/core/state.ts'
import { step } from '../src/core/step.ts'
import type { Us } from '../src/core/units.ts'

export const LIVES_CONFIG: CoreConfig = { ...CORE_DEFAULTS, programsMax: 200_000, callsOpenMax: 200_000, residency: 'always-discard' }

const ENGINE = engineId('e0')
const TENANTS = 100
/** Between two inputs. */
const INPUT_US = 200

const CAPABILITIES: Capabilities = {
  models: ['m'], contextTokens: 8_192, runningMax: 256, tokenise: true, rank: true, preempt: true, cancel: true,
  memory: { cells: 2 ** 34, granule: 16, sequences: 2 ** 20 }, kvBytesPerToken: 100_000, sharesBytes: false, copy: true, trim: true,
  offload: true, onboard: true, discard: true, exact: { answer: 'yes', because: 'a bench says so' }, replayByOrigin: true,
  imageKey: 'k', progress: true, inventory: false,
}
const SPEEDS: EngineSpeeds = {
  prefillNsPerToken: 500_000, decodeBaseNs: 15_000_000, decodeRowNs: 2_000_000, copyOutNsPerToken: 8_000, copyInNsPerToken: 8_000,
}

interface Life { readonly name: string; readonly tenant: number; readonly results: readonly string[]; readonly tokens: number; readonly last: CallId | null }

export class Lives {
  readonly core: CoreState = emptyCore(LIVES_CONFIG)
  readonly #keep: (facts: readonly Logged[]) => void
  #nowUs = 0
  #made = 0

  /** `keep` gets what each step said: one record of the log. `wallOffsetUs`: when they began, for clocks that go on from them. */
  constructor(keep: (facts: readonly Logged[]) => void, wallOffsetUs: Us = 0) {
    this.#keep = keep
    this.#feed({ kind: 'restart', reign: 1, wallOffsetUs, images: [] })
    this.#feed({ kind: 'engineJoined', engine: ENGINE, reign: 1, capabilities: CAPABILITIES, speeds: SPEEDS })
  }

  /** A program that has made so many calls and waits for the tools of the last. */
  waits(calls: number): Life {
    const name = `program-${this.#made}`
    let life: Life = { name, tenant: this.#made % TENANTS, results: [], tokens: 0, last: null }
    for (let made = 0; made < calls; made += 1) life = this.#call(life)
    return life
  }

  /** A call of a new program that arrived and is not sized yet. */
  asks(): void {
    this.#submit({ name: `program-${this.#made}`, tenant: this.#made % TENANTS, results: [], tokens: 0, last: null })
  }

  ends({ name, tenant }: Life): void {
    this.#feed({ kind: 'finishProgram', tenant: tenantId(`tenant-${tenant}`), program: name })
  }

  #call(life: Life): Life {
    const call = this.#submit(life)
    const prompt = life.tokens + 200
    const matched = life.last === null ? null : { record: life.last, tokens: life.tokens }
    this.#feed({ kind: 'measured', call, promptTokens: prompt, matched, renderingWon: null })
    const from: FromAttempt = { engine: ENGINE, reign: 1, call, attempt: 1, run: 0, epoch: 1 }
    const report = (outputTokens: number): AttemptReport => ({
      service: { ...emptyLedger(), useful: { residentUs: outputTokens * 20_000, workUs: outputTokens * 9_000 } },
      tailPrefilled: 200, tailDecoded: outputTokens - 1, outputTokens, recomputedTokens: 0,
    })
    for (const outputTokens of [10, 20]) {
      this.#feed({ kind: 'progress', engine: ENGINE, reign: 1, speeds: null, calls: [{ ...from, report: report(outputTokens) }] })
    }
    const tool = `call_${call}_0`
    this.#feed({
      kind: 'finished', ...from, finish: 'tool_calls', report: report(30), parts: { waitUs: 0, recomputeUs: 0, prefillUs: 100_000, decodeUs: 600_000 },
      spans: [{ tokens: 200, origin: 'prefilled', digest: `p-${call}` }, { tokens: 29, origin: 'decoded', digest: `d-${call}` }],
      toolCalls: [{ id: tool, name: `tool-${life.tenant % 20}` }], toolEffect: 'read', resume: 'none',
    })
    return { ...life, results: [tool], tokens: prompt + 29, last: call }
  }

  #submit({ name, tenant, results }: Life): CallId {
    this.#made += 1
    const call = callId(`${this.#made}`.padStart(24, '0'))
    this.#feed({
      kind: 'submit', tenant: tenantId(`tenant-${tenant}`), call, body: bodyId(`body:${call}`), freshProgram: `fresh-${this.#made}`,
      claims: {
        identity: { source: 'explicit', confidence: 100 }, program: name, thread: null, session: null, epoch: null, final: false,
        toolResults: results, kind: `agent-${tenant % 8}`, parent: null, node: null, parents: [],
      },
      model: 'm', digest: `${this.#made}`.padStart(64, 'd'), seed: 1, promptTokensEstimate: 200, maxTokens: 512, exactResume: null,
      priorityClass: 'default', deadlineUs: null,
    })
    return call
  }

  #feed(input: Input): void {
    this.#nowUs += INPUT_US
    this.#keep(step(this.core, input, this.#nowUs))
  }
}
