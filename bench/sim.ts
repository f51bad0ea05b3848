/** Owns `bench sim`: how fast the simulator plays ten thousand programs of the tau-bench trace on sixteen engines. */
import { columns } from '../src/core/explain/explain-text.ts'
import { Draw } from '../src/eval/draw.ts'
import { arrivalsUs, loadTrace, waitSampler } from '../src/eval/traces.ts'
import type { CallPlan, ProgramPlan } from '../src/sim/plan.ts'
import { throughput } from '../src/sim/throughput.ts'
import { bar, type Bench } from './bench.ts'

const PROGRAMS = 10_000
const ENGINES = 16
const SECONDS_MAX = 60
/** tau-bench has a model play the person, whose times nobody recorded. */
const PERSON_US_MAX = 20_000_000
/** Between two arrivals: about nine tenths of what the engines can do. */
const MEAN_US = 60_000

export const sim: Bench = {
  name: 'sim',
  needsModel: false,
  what: `the simulator: ${PROGRAMS} programs of the tau-bench trace on ${ENGINES} engines in virtual time`,
  async run({ quick, say }) {
    const count = quick ? PROGRAMS / 20 : PROGRAMS
    const draw = new Draw(1)
    const plans = plansOf(draw)
    const arrivals = arrivalsUs('poisson', count, MEAN_US, draw).map((atUs, at) => ({ atUs, plan: { ...plans[at % plans.length] as ProgramPlan, number: at } }))
    const begunMs = performance.now()
    const begunCpu = process.cpuUsage()
    const done = await throughput(arrivals, ENGINES, {}, say)
    const wallS = (performance.now() - begunMs) / 1_000
    const { user, system } = process.cpuUsage(begunCpu)
    const cpuS = (user + system) / 1e6
    const perS = (what: number): string => String(Math.round(what / wallS))
    const text = columns([
      ['programs', 'wall s', 'processor s', 'virtual s', 'events/s', 'turns/s', 'facts/s', 'engines busy', 'tokens fed'],
      [String(count), wallS.toFixed(1), cpuS.toFixed(1), String(Math.round(done.virtualUs / 1e6)), perS(done.events), perS(done.steps), perS(done.facts),
        `${Math.round(done.busyPpm / 10_000)} %`, String(done.tokensFed)],
    ], 'rrrrrrrrr').join('\n')
    const limit = quick ? SECONDS_MAX / 20 : SECONDS_MAX
    return {
      bars: [bar('wall', { value: wallS, low: wallS, high: wallS }, 's', `under ${limit} s`, wallS < limit)],
      text: `${text}\nends: ${Object.entries(done.ends).map(([end, times]) => `${times} ${end}`).join(', ')}`,
      figures: { ...done, wallS, cpuS },
      notMeasured: ['faults, laws and comparison of tokens (all off here)', 'engines that report more often than once a second', 'other shapes of engine and other traces'],
    }
  },
}

/** Chains only, as the trace is; waits that it does not have are drawn. */
function plansOf(draw: Draw): ProgramPlan[] {
  const waitOf = waitSampler()
  return loadTrace('tau-bench-airline').programs.map(({ nodes, sharedTokens }, number) => {
    const calls: CallPlan[] = []
    for (const node of nodes) {
      const last = calls.at(-1)
      if (node.kind === 'call') {
        calls.push({ given: Math.max(1, calls.length === 0 ? node.newTokens - sharedTokens : node.newTokens), says: Math.max(1, node.outputTokens), then: 'end', waitUs: 0, maxTokens: null, tool: 'search', commits: false, sub: null })
      } else if (last !== undefined) {
        calls[calls.length - 1] = { ...last, then: node.kind === 'tool' ? 'tool' : 'turn', waitUs: node.waitUs ?? (node.kind === 'human' ? draw.below(PERSON_US_MAX) : waitOf(node, draw)) }
      }
    }
    return {
      kind: 'chain', number, tenant: 'bench', parent: null, priorityClass: 'default', deadlineUs: null, named: 'program', agent: 'tau-bench-airline', prefix: { kind: 'given', id: 1, tokens: sharedTokens }, calls,
      declares: false, finishes: true,
    }
  })
}
