/** Owns `entracte programs`: the programs a running server knows, newest first. */
import { Command } from 'commander'
import { columns, duration } from '../core/explain/explain-text.ts'
import type { ProgramView } from '../protocol/program.ts'
import { wholeNumber, withServer } from './options.ts'
import { ServerClient, type ServerOptions } from './server-client.ts'
import { print, printJson } from './terminal.ts'

const ROWS_DEFAULT = 50

export const programsCommand = (): Command => withServer(new Command('programs'))
  .summary('list the programs of a running server')
  .description('Lists the programs of a running server: what each does now, its calls, and the service it has received.')
  .option('--limit <count>', 'show at most so many', wholeNumber(1), ROWS_DEFAULT)
  .option('--json', 'print the list as JSON', false)
  .action(async (options: ServerOptions & { limit: number; json: boolean }) => {
    const programs = await new ServerClient(options).programs(options.limit)
    if (options.json) return printJson(programs)
    if (programs.length === 0) return print('no programs yet')
    const head = ['program', 'state', 'for', 'calls', 'served', 'recomputed', 'kind', 'known by']
    print(columns([head, ...programs.map(row)], 'llrrrrll').map((line) => line.slice(2)).join('\n'))
  })

function row(program: ProgramView): string[] {
  const { service, identity } = program
  return [
    program.id, stateOf(program), duration(program.ageUs), String(program.callsTotal),
    duration(service.useful.workUs + service.retried.workUs), duration(service.recomputed.workUs),
    program.kind || '-', `${identity.source} ${identity.confidence}`,
  ]
}

/** What it waits for, while it is open; else how it ended. */
function stateOf({ stage, waits }: ProgramView): string {
  if (stage.kind !== 'open') return stage.provisional === true ? `${stage.kind}, may go on` : stage.kind
  const on = [...new Set(waits.map((wait) => wait.on))]
  return on.length === 0 ? 'client' : on.join(', ')
}
