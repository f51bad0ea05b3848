/** A control plane that starts the tiny engine in the folder it is given, says so, and waits to be killed. */
import { tinyEngine } from './tiny-engine.ts'

tinyEngine(process.argv[2] ?? '').open(1, {
  input: (input) => { process.stdout.write(`${input.kind}\n`) },
  chunk: () => undefined,
  outcome: () => undefined,
})
setInterval(() => undefined, 60_000)
