/** A core that has been told of waits and of programs, for tests of what it makes of them. */
import { apply, emptyCore } from '../../src/core/apply.ts'
import { must } from '../../src/core/assert.ts'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import { deciding, type Deciding } from '../../src/core/deciding.ts'
import { callId, interruptId, programId, tenantId, threadId, type InterruptId, type ProgramId } from '../../src/core/ids.ts'
import { learnProgram, learnProgramBegun, learnService, learnWait, learnWaitBegun } from '../../src/core/predict/learn.ts'
import { expectProgram, expectWait } from '../../src/core/predict/expect.ts'
import type { CoreState, Interrupt, Program } from '../../src/core/state.ts'

export const T = tenantId('t')
export const U = tenantId('u')

export class Learned {
  readonly core: CoreState
  /** Whether it is asked beforehand how large a program will be. */
  predicts = true
  #count = 0

  constructor(config: Partial<CoreConfig> = {}) {
    this.core = emptyCore({ ...CORE_DEFAULTS, ...config })
  }

  #deciding(nowUs: number): Deciding {
    return deciding(this.core, nowUs, () => {})
  }

  program(tenant = T, kind = 'agent', steps: number | null = null): Program {
    this.#count += 1
    const id = programId(tenant, `p${this.#count}`)
    apply(this.core, { seq: this.core.seq + 1, atUs: this.core.nowUs, version: 1, fact: {
      kind: 'program.started', program: id, tenant, session: null, declared: true, agent: kind, identity: { source: 'explicit', confidence: 100 },
      priorityClass: 'default', deadlineUs: null, parent: null, steps,
    } })
    return must(this.core.programs, id)
  }

  /** A program from its start to its end, as large as said. */
  ended(sizeMs: number, kind = 'agent', tenant = T, how: 'ended' | 'cut' = 'ended', calls = 1): void {
    const program = this.program(tenant, kind)
    if (this.predicts) expectProgram(this.#deciding(this.core.nowUs), program.id)
    learnService(this.core, program, sizeMs * 1_000, calls)
    learnProgram(this.core, program, how)
    program.stage = { kind: 'ended', atUs: this.core.nowUs, provisional: false, servedUs: program.standing.servedUs, callsDone: program.standing.callsDone }
  }

  open(sizeMs: number, kind = 'agent', tenant = T): Program {
    const program = this.program(tenant, kind)
    learnService(this.core, program, sizeMs * 1_000, 1)
    return program
  }

  waiting(toolClass = 'search', tenant = T, startedUs = 0, kind: Interrupt['kind'] = 'TOOL'): Interrupt {
    const program = [...this.core.programs.values()].find((one) => one.tenant === tenant) ?? this.program(tenant)
    this.#count += 1
    const call = callId(`c${this.#count}`)
    const id: InterruptId = interruptId(call)
    const interrupt: Interrupt = {
      id, call, thread: threadId(program.id, 'main'), program: program.id as ProgramId, epoch: 1, kind, toolClass, toolCallIds: [], effect: 'read', effectKey: 'k', commits: [],
      startedUs, expected: null, stage: { kind: 'waiting' },
    }
    this.core.interrupts.set(id, interrupt)
    learnWaitBegun(this.core, must(this.core.tenants, tenant), interrupt)
    expectWait(this.#deciding(startedUs), id)
    return interrupt
  }

  waited(waitMs: number, toolClass = 'search', tenant = T, how: 'ended' | 'cut' = 'ended', kind: Interrupt['kind'] = 'TOOL'): void {
    const interrupt = this.waiting(toolClass, tenant, this.core.nowUs, kind)
    learnWait(this.core, must(this.core.tenants, tenant), interrupt, waitMs * 1_000, how)
  }
}
