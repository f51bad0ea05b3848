/** Decides the inputs of a dump again (`breach-*.json` in the data directory) and says which of them breaks which law. */
import { readFileSync } from 'node:fs'
import { replayDump, type Dump } from '../src/driver/black-box.ts'

const [file] = process.argv.slice(2)
if (file === undefined || file.startsWith('-')) {
  console.log('node dist/scripts/replay-dump.js FILE')
  process.exit(file === '--help' ? 0 : 2)
}
const dump = JSON.parse(readFileSync(file, 'utf8')) as Dump
console.log(`law ${dump.law}: ${dump.why}`)
const seen = replayDump(dump)
const input = seen === null ? undefined : dump.inputs[seen.input - 1]
if (seen === null) console.log(`${dump.inputs.length} inputs decided again: nothing breaks; what broke was no decision of theirs`)
else console.log(`input ${seen.input} of ${dump.inputs.length} breaks law ${seen.law}: ${seen.why}\n${JSON.stringify(input ?? 'the state before any')}`)
