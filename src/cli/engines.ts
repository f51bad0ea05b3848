/** Owns `entracte engines`: the engines of a running server and what each does, and draining one. */
import { Command } from 'commander'
import { columns } from '../core/explain/explain-text.ts'
import type { EngineView } from '../protocol/admin.ts'
import { wholeNumber, withServer } from './options.ts'
import { ServerClient, type ServerOptions } from './server-client.ts'
import { print, printJson } from './terminal.ts'

const WITHIN_SECONDS = 30
const WITHIN_SECONDS_MAX = 86_400

export const enginesCommand = (): Command => withServer(new Command('engines'))
  .summary('list, drain and undrain the engines of a running server')
  .description('Lists the engines of a running server: what each does, its running calls and the States that wait on its device.\n'
    + 'The key is the configuration\'s adminKey.')
  .option('--json', 'print the list as JSON', false)
  .action(async (options: ServerOptions & { json: boolean }) => {
    const engines = await new ServerClient(options).engines()
    if (options.json) return printJson(engines)
    print(columns([['engine', 'stage', 'calls', 'states', ''], ...engines.map(row)], 'llrrl').map((line) => line.slice(2).trimEnd()).join('\n'))
  })
  .addCommand(withServer(new Command('drain'))
    .summary('let no call begin there, and move away what is there')
    .description('No call begins on the engine any more. What runs there may end within the time, then it is paused and goes on elsewhere;\n'
      + 'what waits there moves to host memory. It holds until "undrain", also over restarts.')
    .argument('<engine>')
    .option('--within <seconds>', 'time for what runs there', wholeNumber(0, WITHIN_SECONDS_MAX), WITHIN_SECONDS)
    .action(async (engine: string, options: { within: number }, command: Command) => {
      await new ServerClient(serverOf(command)).drain(engine, options.within)
      print(`${engine} is draining; "entracte engines" says when it is drained`)
    }))
  .addCommand(withServer(new Command('undrain'))
    .summary('let calls begin there again')
    .argument('<engine>')
    .action(async (engine: string, _options: object, command: Command) => {
      await new ServerClient(serverOf(command)).undrain(engine)
      print(`${engine} takes calls again`)
    }))

/** Wherever they stand, "engines" takes the options that both have. */
const serverOf = (command: Command): ServerOptions => command.optsWithGlobals()

const row = ({ id, stage, callsRunning, statesIdle, why }: EngineView): string[] =>
  [id, stage, String(callsRunning), String(statesIdle), why ?? '']
