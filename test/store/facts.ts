/** Facts for the store's tests. */
import type { Fact, Logged } from '../../src/core/fact.ts'

export const logged = (seq: number, fact: Fact = { kind: 'timer.set', timer: `t${seq}`, atUs: seq }): Logged =>
  ({ seq, atUs: seq * 1_000, version: 1, fact })
