/**
 * Owns the laws of programs and ledgers: service never decreases, in none of its parts, and what a program was charged is
 * what its calls were (12); an epoch never goes back (3); and nothing of a program that is over holds KV or waits (6, 9).
 */
import { addLedger, attainedUs } from '../account.ts'
import { must } from '../assert.ts'
import { emptyLedger, type CoreState, type Ledger, type Program } from '../state.ts'
import { law, type Seen } from './law.ts'

export function checkPrograms(core: Readonly<CoreState>, seen: Seen): void {
  for (const program of core.programs.values()) {
    checkLedger(core, program, seen)
    if (program.stage.kind !== 'open') checkOver(core, program)
  }
  for (const id of seen.programs.keys()) if (!core.programs.has(id)) seen.programs.delete(id)
}

function checkLedger(core: Readonly<CoreState>, program: Program, seen: Seen): void {
  const { ledger } = program
  const last = seen.programs.get(program.id)
  // Between two looks one may be forgotten and another begin under its name.
  const before = last?.seq === program.seq ? last : { attainedUs: 0, retriedUs: 0, recomputedUs: 0, epoch: 0 }
  const now = {
    seq: program.seq, attainedUs: attainedUs(ledger), retriedUs: ledger.retried.residentUs, recomputedUs: ledger.recomputed.residentUs, epoch: program.epoch,
  }
  law(12, now.attainedUs >= before.attainedUs, () => `${program.id} was served ${before.attainedUs} us and now ${now.attainedUs}`)
  law(12, now.retriedUs >= before.retriedUs, () => `${program.id} had wasted ${before.retriedUs} us and now ${now.retriedUs}`)
  law(12, now.recomputedUs >= before.recomputedUs, () => `${program.id} had ${before.recomputedUs} us recomputed and now ${now.recomputedUs}`)
  law(3, program.epoch >= before.epoch, () => `${program.id} went from epoch ${before.epoch} to ${program.epoch}`)
  seen.programs.set(program.id, now)
  let sum = emptyLedger()
  for (const id of program.calls) sum = addLedger(sum, must(core.calls, id).ledger)
  law(12, sameLedger(sum, ledger), () => `${program.id} was charged ${JSON.stringify(ledger)}, its calls ${JSON.stringify(sum)}`)
}

const PARTS = ['useful', 'retried', 'recomputed'] as const

const sameLedger = (a: Ledger, b: Ledger): boolean =>
  PARTS.every((part) => a[part].residentUs === b[part].residentUs && a[part].workUs === b[part].workUs)

function checkOver(core: Readonly<CoreState>, program: Program): void {
  for (const id of program.threads) {
    const thread = must(core.threads, id)
    law(9, thread.state === null, () => `${id} holds KV though its program is ${program.stage.kind}`)
    law(6, thread.active === null, () => `${id} has an open call though its program is ${program.stage.kind}`)
    law(6, thread.interrupt === null, () => `${id} waits for tools though its program is ${program.stage.kind}`)
  }
}
