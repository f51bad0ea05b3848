/**
 * Owns `entracte doctor`: looks at everything a server would need here, changes nothing, fetches nothing, and says of
 * each thing what was found and what to do. Fails only where a server could not start.
 */
import { Command } from 'commander'
import { checkup, type Check } from './checkup.ts'
import { EXIT } from './failure.ts'
import { withConfig, type ConfigOptions } from './options.ts'
import { packageVersion } from './settings.ts'
import { print, printJson } from './terminal.ts'

const MARKS: Readonly<Record<Check['status'], string>> = { ok: 'ok', warn: 'warn', fail: 'FAIL' }

export const doctorCommand = (): Command => withConfig(new Command('doctor'))
  .summary('look whether everything a server needs is here')
  .description('Looks at Node, libraries, model, memory, disk, port and engine settings, and says of each what was found and what to do.\n'
    + 'Fetches nothing. Exit code 1 where a server could not start.')
  .option('--json', 'print the checks as JSON', false)
  .action(async (options: ConfigOptions & { json: boolean }) => {
    const checks = await checkup(options)
    const ok = checks.every(({ status }) => status !== 'fail')
    if (options.json) printJson({ version: packageVersion(), ok, checks })
    else print(text(checks, ok))
    if (!ok) process.exitCode = EXIT.failed
  })

function text(checks: readonly Check[], ok: boolean): string {
  const width = Math.max(...checks.map(({ name }) => name.length))
  const lines = checks.flatMap(({ name, status, found, next }) => {
    const [first = '', ...more] = found.split('\n')
    const indent = ' '.repeat(width + 8)
    return [
      `${MARKS[status].padEnd(4)}  ${name.padEnd(width)}  ${first}`,
      ...more.map((line) => indent + line),
      ...(next === null ? [] : [`${indent}next: ${next}`]),
    ]
  })
  return [`entracte ${packageVersion()}`, '', ...lines, '', ok ? 'A server can start here.' : 'A server cannot start here until what is marked FAIL is mended.'].join('\n')
}
