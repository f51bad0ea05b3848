/**
 * Owns what older versions of facts mean today. A fact is never edited: an old one is lifted on its way in, version by
 * version, and the golden logs of each release are replayed in the tests.
 */
import { assert } from './assert.ts'
import { FACT_VERSION, type Fact, type Logged } from './fact.ts'

/** A fact as some release wrote it. */
export type OldFact = { readonly kind: string; readonly [field: string]: unknown }
/** Makes a fact of one version into the same fact of the next; one that did not change is returned as it is. */
export type Lift = (fact: OldFact) => OldFact

/** By the version they lift from. Every version below FACT_VERSION has one. */
const LIFTS: ReadonlyMap<number, Lift> = new Map()

/** Throws InvariantError for a version this release does not know: a newer one wrote the log. */
export function upcast(logged: Logged, lifts = LIFTS): Logged {
  if (logged.version === FACT_VERSION) return logged
  assert(logged.version < FACT_VERSION, `fact ${logged.seq} has version ${logged.version}; this release knows up to ${FACT_VERSION}`)
  let fact = logged.fact as OldFact
  for (let version = logged.version; version < FACT_VERSION; version += 1) {
    const lift = lifts.get(version)
    assert(lift !== undefined, `fact ${logged.seq} has version ${version}, and nothing says what that means today`)
    fact = lift(fact)
  }
  return { ...logged, version: FACT_VERSION, fact: fact as Fact }
}
