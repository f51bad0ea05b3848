/**
 * The suite that every mutant has to get past, in one process, the quickest files first: laws stated one by one, then random
 * worlds, nonsense and small worlds. Whoever started it stops it at the first test that fails.
 */
const FILES = [
  'core/step', 'core/laws', 'core/malformed', 'core/invariants', 'core/graph', 'core/lineage', 'core/heap', 'core/order', 'core/toy', 'core/cost',
  'core/snapshot', 'core/shares', 'core/placement', 'core/pack', 'core/model', 'core/preempt', 'core/reserve', 'core/slack', 'core/wait', 'core/work', 'core/gittins', 'core/aging', 'core/cancel', 'core/effects', 'core/fences', 'core/readoption',
  'core/fences', 'core/effects', 'core/cancel', 'driver/barrier', 'driver/black-box', 'driver/recover', 'driver/driver',
  'core/touch', 'core/fuzz', 'core/exhaustive', 'core/replay', 'core/readoption', 'core/world',
]

for (const file of FILES) await import(`../../test/${file}.test.js`)
