/**
 * Owns what older versions of facts mean today. A fact is never edited: an old one is lifted on its way in, version by
 * version, and the golden logs of each release are replayed in the tests.
 */
import { assert } from './assert.ts'
import { FACT_VERSION, type Logged } from './fact.ts'

/** Throws InvariantError for a version this release does not know: a newer one wrote the log. */
export function upcast(logged: Logged): Logged {
  assert(logged.version <= FACT_VERSION, `fact ${logged.seq} has version ${logged.version}; this release knows up to ${FACT_VERSION}`)
  return logged
}
