/**
 * Owns what a program of an agent would do in a world where nothing goes wrong: its calls, what each is given and says, how
 * long it waits in between. Plans come from a trace or from a generator; a generated one is a function of (seed, number).
 */
import type { Tokens, Us } from '../core/units.ts'
import { Chance } from './chance.ts'
import type { Piece } from './content.ts'
import { TOOLS, type Tool } from './tool.ts'

export interface CallPlan {
  /** What the prompt has beyond the conversation so far. */
  readonly given: Tokens
  readonly says: Tokens
  /** `turn`: it answers, and the person comes back after the wait. */
  readonly then: 'tool' | 'turn' | 'end'
  readonly waitUs: Us
  /** Cuts what it says; null: nothing does. */
  readonly maxTokens: Tokens | null
  /** What it calls, where it calls one. */
  readonly tool: Tool
  /** Whether an effect of the tool is committed by its runtime before its result comes back. */
  readonly commits: boolean
  /** The tool is an agent: the wait is over when its program is. */
  readonly sub: ProgramPlan | null
}

export interface ProgramPlan {
  readonly kind: 'chain'
  readonly number: number
  readonly tenant: string
  /** How it names itself: a program that is declared, a session, or not at all. */
  readonly named: 'program' | 'session' | 'none'
  readonly agent: string
  /** The program whose sub-agent it is, by name. */
  readonly parent: string | null
  readonly priorityClass: string
  /** From its beginning on. */
  readonly deadlineUs: Us | null
  /** The first tokens of its first prompt, which all of its kind have; 0 tokens: none. */
  readonly prefix: Piece
  readonly calls: readonly CallPlan[]
  readonly declares: boolean
  readonly finishes: boolean
}

/** How large generated programs are. */
export interface PlanSize {
  readonly callsMax: number
  readonly givenMax: Tokens
  readonly saysMax: Tokens
  readonly waitMaxUs: Us
}

/** Sub-agents are numbered apart. */
const SUB_AGENTS_FROM = 1_000_000

export function generatedPlan(seed: number, number: number, size: PlanSize, parent: string | null = null): ProgramPlan {
  const chance = new Chance(seed, `plan ${number}`)
  const kind = chance.below(3)
  const named = parent === null ? chance.pick(['program', 'program', 'session', 'session', 'none'] as const) : 'program'
  const count = chance.between(1, parent === null ? size.callsMax : 2)
  const hasSub = named === 'program' && chance.hit(SUB_AGENT_PPM)
  const calls = Array.from({ length: count }, (_, at): CallPlan => {
    const last = at === count - 1
    const drawn = generatedCall(chance, size, at === 0)
    const then = last ? 'end' : named === 'session' && chance.hit(200_000) ? 'turn' : 'tool'
    const sub = hasSub && at === 0 && then === 'tool' ? generatedPlan(seed, number + SUB_AGENTS_FROM, size, `agent-${number}`) : null
    return { ...drawn, then, sub }
  })
  return {
    kind: 'chain', number, named, calls, parent, ...generatedStanding(chance), agent: `kind-${kind}`, prefix: { kind: 'given', id: 7_000 + kind, tokens: 16 * kind },
    declares: chance.hit(300_000), finishes: chance.hit(800_000),
  }
}

const SUB_AGENT_PPM = 200_000

export function generatedCall(chance: Chance, size: PlanSize, first: boolean): CallPlan {
  const says = chance.tail(2, size.saysMax)
  return {
    given: first ? chance.between(20, size.givenMax) : chance.tail(1, size.givenMax), says, then: 'end',
    waitUs: chance.tail(1_000, size.waitMaxUs), maxTokens: chance.hit(60_000) ? Math.max(1, says - 1) : null,
    tool: chance.pick(TOOLS), commits: chance.hit(500_000), sub: null,
  }
}

/** Whose it is, and how urgent. */
export function generatedStanding(chance: Chance): Pick<ProgramPlan, 'tenant' | 'priorityClass' | 'deadlineUs'> {
  return {
    tenant: chance.pick(['a', 'a', 'b']), priorityClass: chance.pick(['default', 'default', 'interactive', 'batch']),
    deadlineUs: chance.hit(300_000) ? chance.tail(500_000, 60_000_000) : null,
  }
}
