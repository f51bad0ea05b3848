/**
 * The suite that every mutant has to get past, in one process and under 20 seconds, the quickest files first: laws stated one
 * by one, then random worlds, nonsense and small worlds, the longest of them left out. Whoever started it stops it at the
 * first test that fails.
 */
const FILES = [
  'core/step', 'core/laws', 'core/malformed', 'core/graph', 'core/lineage', 'core/heap', 'core/asleep', 'core/digests', 'core/order', 'core/toy', 'core/wait', 'core/work', 'core/turn',
  'core/gittins', 'core/aging', 'core/cancel', 'core/drain', 'core/choices', 'core/effects', 'core/shares', 'core/slack', 'core/preempt', 'core/placement', 'core/reserve', 'core/pack',
  'driver/barrier', 'driver/black-box', 'driver/recover', 'driver/driver', 'core/fences', 'core/readoption',
  'core/standing', 'core/model', 'core/snapshot', 'core/columns', 'core/invariants', 'core/replay', 'core/graph-life', 'core/fuzz', 'core/exhaustive',
]

for (const file of FILES) await import(`../../test/${file}.test.js`)
