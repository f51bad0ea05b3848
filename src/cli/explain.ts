/** Owns `entracte explain PROGRAM`: where its time went, or what it waits for now. */
import { Command } from 'commander'
import { explain, type Explanation, type Live } from '../core/explain/explain.ts'
import { explainText } from '../core/explain/explain-text.ts'
import type { Logged } from '../core/fact.ts'
import type { ProgramDetail } from '../protocol/program.ts'
import { withServer } from './options.ts'
import { ServerClient, type ServerOptions } from './server-client.ts'
import { print, printJson } from './terminal.ts'

export const explainCommand = (): Command => withServer(new Command('explain'))
  .summary('say where a program\'s time went, or what it waits for now')
  .description('Says why a program took as long as it did: its time in queue, resume (copied or recomputed), prefill, decode and tool wait,\n'
    + 'which add up to the whole, with the decisions taken about its KV and their costs. While it waits: for what, and behind whom.')
  .argument('<program>', 'its id, as "entracte programs" shows it')
  .option('--json', 'print it as JSON', false)
  .action(async (program: string, options: ServerOptions & { json: boolean }) => {
    const server = new ServerClient(options)
    const [detail, facts] = [await server.program(program), await server.facts(program)]
    const explained = explain(facts, liveOf(detail, facts))
    if (options.json) printJson(explained)
    else print(explainText(explained))
  })

/** The facts carry the server's own clock: now is the program's arrival and its age since. */
function liveOf(detail: ProgramDetail, facts: readonly Logged[]): Live {
  const started = facts.find(({ fact }) => fact.kind === 'program.started')
  const lastUs = facts.at(-1)?.atUs ?? 0
  const queued = detail.waits.flatMap(({ call, what, behind }) => call === null ? [] : [[call, { what, behind }] as const])
  return {
    nowUs: started === undefined ? lastUs : Math.max(lastUs, started.atUs + detail.ageUs),
    queued: Object.fromEntries(queued),
    known: { program: detail.id, stage: detail.stage.kind === 'ended' ? 'completed' : detail.stage.kind as Explanation['stage'], why: detail.stage.why ?? null },
  }
}
