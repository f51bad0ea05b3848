/**
 * Owns the two counters of service for engines that do not measure it themselves: `residentUs`, the time an attempt
 * was running, and `workUs`, that time divided over whoever ran beside it. M1: the work of all members sums to the
 * engine's busy time, to the microsecond.
 */
import { must } from '../core/assert.ts'
import { emptyLedger, type Ledger, type Service } from '../core/state.ts'
import type { Us } from '../core/units.ts'

type Bucket = 'useful' | 'recomputed'

interface Member { into: Bucket; readonly ledger: Ledger }

export class ServiceMeter<Key> {
  readonly #members = new Map<Key, Member>()
  #settledUs: Us = 0

  enter(key: Key, nowUs: Us): void {
    this.#settle(nowUs)
    this.#members.set(key, { into: 'useful', ledger: emptyLedger() })
  }

  /** From now on this member's time goes into `bucket`. */
  charge(key: Key, bucket: Bucket, nowUs: Us): void {
    this.#settle(nowUs)
    must(this.#members, key).into = bucket
  }

  read(key: Key, nowUs: Us): Ledger {
    this.#settle(nowUs)
    return structuredClone(must(this.#members, key).ledger)
  }

  leave(key: Key, nowUs: Us): void {
    this.#settle(nowUs)
    this.#members.delete(key)
  }

  #settle(nowUs: Us): void {
    const spentUs = nowUs - this.#settledUs
    this.#settledUs = nowUs
    if (spentUs <= 0 || this.#members.size === 0) return
    const shareUs = Math.floor(spentUs / this.#members.size)
    let leftUs = spentUs - shareUs * this.#members.size
    for (const { into, ledger } of this.#members.values()) {
      const service: Service = ledger[into]
      service.residentUs += spentUs
      service.workUs += shareUs + (leftUs-- > 0 ? 1 : 0)
    }
  }
}
