#!/usr/bin/env node
/** Entry of the command line. Owns which verbs there are and how a failure is told; each verb has its own file. */
import { Command, CommanderError } from 'commander'
import { demoCommand } from './demo.ts'
import { doctorCommand } from './doctor.ts'
import { engineCommand } from './engine.ts'
import { enginesCommand } from './engines.ts'
import { explainCommand } from './explain.ts'
import { EXIT, tell } from './failure.ts'
import { modelsCommand } from './models.ts'
import { programsCommand } from './programs.ts'
import { serveCommand } from './serve.ts'
import { packageVersion } from './settings.ts'
import { note } from './terminal.ts'

const program = new Command('entracte')
  .description('Program-aware serving for LLM agents: whole programs in order, and a waiting program\'s KV where it costs least.')
  .version(packageVersion(), '-v, --version')
  .option('--debug', 'show stacks of errors', false)
  .showHelpAfterError('entracte --help shows what there is.')
  .addHelpText('after', `
Exit codes:
  0 done   1 failed   2 wrong usage or configuration   3 no server answers

First steps:
  entracte demo               real agent programs under two policies, and what differed
  entracte serve              one OpenAI-compatible base URL
  entracte explain PROGRAM    why it took as long as it did`)

for (const command of [serveCommand(), demoCommand(), programsCommand(), explainCommand(), enginesCommand(), engineCommand(), modelsCommand(), doctorCommand()]) {
  program.addCommand(command.exitOverride().showHelpAfterError(`entracte ${command.name()} --help shows what there is.`))
}
program.exitOverride()

// Whoever reads the output may have enough of it (`| head`): that is no failure.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0)
  throw error
})

try {
  await program.parseAsync()
} catch (error) {
  if (error instanceof CommanderError) process.exit(error.exitCode === 0 ? 0 : EXIT.usage)
  const { text, exitCode } = tell(error, program.opts<{ debug: boolean }>().debug)
  note(text)
  // What failed half-way may have left something open, and there is nothing to wait for.
  process.exit(exitCode)
}
