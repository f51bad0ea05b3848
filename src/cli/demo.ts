/** Owns `entracte demo`: reads its flags, has the model fetched, and gives the demonstration a server and a screen. */
import { Command, Option } from 'commander'
import { defaultConfig } from '../config.ts'
import { ORDER_NAMES } from '../core/config.ts'
import { ENTRACTE } from '../eval/arm.ts'
import type { Screen } from '../eval/progress.ts'
import { wholeNumber } from './options.ts'
import { ModelBar, print } from './terminal.ts'

/** Where there is no terminal to ask. */
const COLUMNS_DEFAULT = 100
const SAME_SIGNAL_MS = 1_000

interface DemoFlags {
  readonly model: string
  readonly seed?: number
  readonly policy?: string
  readonly keep: boolean
  readonly json: boolean
}

export const demoCommand = (): Command => new Command('demo')
  .summary('run real agent programs under two policies and show what differed')
  .description('Runs one mix of agent programs on a real model twice, in the same memory: first as engines work today, then with Entracte.\n'
    + 'Most are chains of calls and tools; a map-reduce and a tree search report their forks and joins through the program API.\n'
    + 'Prints what differed, and why for the program that gained most and the one that lost most. Takes about four minutes on two cores.')
  .option('--model <model>', 'a GGUF file, "default", or "tiny"', 'default')
  .option('--seed <number>', 'of arrival and tool times', wholeNumber(0, 2 ** 32 - 1))
  .addOption(new Option('--policy <order>', `order of the second run; ${ENTRACTE.order} where none is named`).choices(ORDER_NAMES))
  .option('--keep', 'leave the second server up and print a curl line', false)
  .option('--json', 'print the result as JSON', false)
  .action(async (flags: DemoFlags) => {
    const [{ INTERRUPTED, runDemo }, { start }, { resolveModel }] = await Promise.all([import('../eval/demo.ts'), import('../main.ts'), import('../models/resolve.ts')])
    const signal = untilCalledOff(INTERRUPTED)
    const bar = new ModelBar()
    try {
      await resolveModel({ model: flags.model, env: process.env, onProgress: bar.update, signal }).finally(() => bar.end())
    } catch (error) {
      if (!signal.aborted) throw error
      process.exitCode = INTERRUPTED
      return
    }
    const { seed = null, policy = null, ...rest } = flags
    process.exitCode = await runDemo({ ...rest, seed, policy }, {
      start: (raw) => start(defaultConfig(raw)),
      screen: screenOf(flags.json ? process.stderr : process.stdout),
      print,
      signal,
    })
  })

/** A second signal ends the process, unless it is the first one passed on by a wrapper that the terminal sent it to as well. */
function untilCalledOff(exitCode: number): AbortSignal {
  const ended = new AbortController()
  let toldMs: number | null = null
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => {
      if (toldMs !== null && performance.now() - toldMs > SAME_SIGNAL_MS) process.exit(exitCode)
      toldMs ??= performance.now()
      ended.abort()
    })
  }
  return ended.signal
}

const screenOf = (stream: NodeJS.WriteStream): Screen => ({
  write: (text) => { stream.write(text) },
  redraws: stream.isTTY === true,
  columns: stream.columns ?? COLUMNS_DEFAULT,
})
