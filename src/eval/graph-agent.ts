/**
 * Owns one agent whose program is a graph that it finds out as it goes: level by level it reports forks, nodes and a join
 * through the program API, makes the level's calls at once, and goes on with what the join left. A call that a join
 * cancelled, since it was needed no more, is no failure. Like the other agents it knows nothing of what is behind HTTP.
 */
import { createHash } from 'node:crypto'
import type { AgentStep, AgentWorld, CallRecord, NodeRecord, ProgramRecord } from './agent-record.ts'
import { chat, ChatError, type WireMessage } from './chat-client.ts'
import { callsOf, type GraphLevel, type GraphProgram } from './graphs.ts'
import { cancelProgram, declareProgram, reasonOf, reportGraph, type GraphReport, type JoinRule } from './program-client.ts'
import { notesFor, SYSTEM } from './task.ts'

/** What a call is refused with, or its stream ends with, where a join has fired without it. */
const NEEDED_NO_MORE: ReadonlySet<string | null> = new Set(['cancelled', 'node_closed', 'thread_cancelled'])

interface GraphJob {
  readonly id: string
  readonly program: GraphProgram
  readonly seed: number
}

/** A conversation that has come this far, in a thread of its own. */
interface Path {
  readonly node: string
  readonly thread: string
  readonly messages: readonly WireMessage[]
  readonly text: string
}

type Branch = Omit<Path, 'text'> & { readonly outputTokens: number }

export async function runGraphAgent(job: GraphJob, world: AgentWorld): Promise<ProgramRecord> {
  const run = new GraphRun(job, world)
  const startMs = world.now()
  let error: string | null = null
  try {
    await declareProgram(world.endpoint, { id: job.id, agent: job.program.kind }, world.signal)
    await run.levels()
  } catch (fault) {
    if (world.signal.aborted) throw fault
    error = reasonOf(fault)
    await cancelProgram(world.endpoint, job.id)
  }
  run.notify(error === null ? 'done' : 'failed')
  const nodes = [...run.nodes].sort((a, b) => (a.node < b.node ? -1 : 1))
  return {
    id: job.id, name: job.program.name, startMs, endMs: world.now(), waitsMs: 0, calls: run.calls, error,
    digest: digestOf(nodes), graph: { joins: run.joins, nodes },
  }
}

class GraphRun {
  readonly calls: CallRecord[] = []
  readonly nodes: NodeRecord[] = []
  joins = 0
  readonly #job: GraphJob
  readonly #world: AgentWorld

  constructor(job: GraphJob, world: AgentWorld) {
    this.#job = job
    this.#world = world
  }

  notify(kind: AgentStep['kind']): void {
    const { program } = this.#job
    this.#world.notify({ program: program.name, kind, call: this.nodes.length, calls: callsOf(program), tool: null })
  }

  async levels(): Promise<void> {
    const { program: { levels }, id } = this.#job
    let paths: readonly Path[] = []
    let after: string | null = null
    for (const level of levels) {
      const branches = this.#branchesOf(level, paths)
      const report = reportOf(level, branches, paths, after)
      await reportGraph(this.#world.endpoint, id, report, this.#world.signal)
      if (level.join !== null) this.joins += 1
      this.notify('asking')
      paths = await this.#askAll(branches, level, level === levels.at(-1))
      if (paths.length < needed(level)) throw new ChatError(`${level.name}: ${paths.length} of ${branches.length} calls are no join of ${needed(level)}`)
      after = lastNode(level, branches)
    }
  }

  #branchesOf(level: GraphLevel, paths: readonly Path[]): readonly Branch[] {
    const [from] = paths
    return level.outputTokens.map((outputTokens, index) => {
      const node = level.outputTokens.length === 1 ? level.name : `${level.name} ${index + 1}`
      const content = [`Case ${this.#job.program.name}, ${node}. ${level.task}`, ...this.#material(level, node, paths)].join('\n')
      if (level.begins === 'anew' || from === undefined) {
        return { node, thread: node, outputTokens, messages: [{ role: 'system', content: SYSTEM }, { role: 'user', content }] }
      }
      const messages: readonly WireMessage[] = [...from.messages, { role: 'assistant', content: from.text }, { role: 'user', content }]
      return { node, thread: level.begins === 'forked' ? node : from.thread, outputTokens, messages }
    })
  }

  /** A conversation that goes on has what came before in it already. */
  #material(level: GraphLevel, node: string, paths: readonly Path[]): readonly string[] {
    if (level.begins === 'anew' && paths.length > 0) return paths.map(({ node: from, text }) => `${from}: ${text}`)
    return level.notesTokens === 0 ? [] : [notesFor(`${this.#job.program.name} ${node}`, this.#world.corpus, level.notesTokens)]
  }

  /** What is left of them, in their order. None goes on by itself when one has failed. */
  async #askAll(branches: readonly Branch[], level: GraphLevel, final: boolean): Promise<readonly Path[]> {
    const ends = await Promise.allSettled(branches.map((branch) => this.#ask(branch, level, final)))
    return ends.flatMap((end) => {
      if (end.status === 'rejected') throw end.reason
      return end.value === null ? [] : [end.value]
    })
  }

  /** Null where a join needs it no more. */
  async #ask(branch: Branch, level: GraphLevel, final: boolean): Promise<Path | null> {
    const { endpoint, signal, model, tokenScale, now } = this.#world
    const { id, program, seed } = this.#job
    const headers = {
      ...endpoint.headers, 'x-program-id': id, 'x-program-agent': program.kind, 'x-program-call-id': branch.node,
      ...(final ? { 'x-program-final': 'true' } : {}),
    }
    const startMs = now()
    try {
      const reply = await chat({ url: endpoint.url, headers }, {
        model, messages: branch.messages, tools: [], toolChoice: 'none', maxTokens: branch.outputTokens * tokenScale, temperature: 0, seed,
      }, signal)
      const { firstTokenMs, promptTokens, cachedTokens, outputTokens, finish, text } = reply
      this.calls.push({ startMs, endMs: now(), firstTokenMs, promptTokens, cachedTokens, outputTokens, finish, tool: null })
      this.#ended(branch, text)
      return { ...branch, text }
    } catch (fault) {
      if (!(fault instanceof ChatError) || !NEEDED_NO_MORE.has(fault.code) || needed(level) === level.outputTokens.length) throw fault
      this.#ended(branch, null)
      return null
    }
  }

  #ended({ node, messages }: Branch, text: string | null): void {
    this.nodes.push({ node, asked: digestOf(messages), wrote: text === null ? null : digestOf(text) })
    this.notify('asking')
  }
}

function needed({ join, outputTokens }: GraphLevel): number {
  switch (join?.rule) {
    case undefined: case 'all': return outputTokens.length
    case 'any': return 1
    case 'partial': return join.atLeast
  }
}

/** `after`: what the level waits for; null: nothing. */
function reportOf(level: GraphLevel, branches: readonly Branch[], paths: readonly Path[], after: string | null): GraphReport {
  const from = paths[0]?.thread
  const parents = after === null ? [] : [after]
  return {
    forks: level.begins !== 'forked' || from === undefined ? [] : branches.map(({ thread }) => ({ thread, from })),
    nodes: [
      ...branches.map(({ node, thread }) => ({ id: node, kind: 'LLM', thread, parents } as const)),
      ...(level.join === null ? [] : [joinNode(lastNode(level, branches), branches, level.join)]),
    ],
  }
}

const joinNode = (id: string, branches: readonly Branch[], join: JoinRule): GraphReport['nodes'][number] =>
  ({ id, kind: 'JOIN', parents: branches.map(({ node }) => node), join })

/** The node that stands for all of a level: its join, or its one call. */
const lastNode = ({ name, join }: GraphLevel, [first]: readonly Branch[]): string => (join === null ? first?.node ?? name : `${name} join`)

const digestOf = (value: unknown): string => createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16)
