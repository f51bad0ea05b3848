/** Owns the ports that a real process has: its clock and its randomness. */
import { randomBytes, randomInt } from 'node:crypto'
import type { Us } from '../core/units.ts'
import type { Clock, Ids } from './ports.ts'

/** Timers further away are set again on the way: a timer of node holds 2^31 - 1 ms. */
const TIMER_MS_MAX = 1_000_000_000

/** `fromUs`: the time that the log last said; time goes on from there, by the wall's account of how long we were away. */
export function systemClock(fromUs: Us, wallOffsetUs: Us): Clock {
  const wallNowUs = (): Us => Math.round((performance.timeOrigin + performance.now()) * 1_000)
  const startedUs = Math.max(fromUs, fromUs === 0 ? 0 : wallNowUs() - wallOffsetUs)
  const originMs = performance.now()
  const nowUs = (): Us => startedUs + Math.round((performance.now() - originMs) * 1_000)
  return {
    nowUs,
    wallOffsetUs: () => wallNowUs() - nowUs(),
    at(atUs, call) {
      let timer: NodeJS.Timeout
      const arm = (): void => {
        const leftMs = Math.max(1, Math.ceil((atUs - nowUs()) / 1_000))
        // A timer of node may come early: what is due is what the clock says.
        timer = setTimeout(() => (nowUs() < atUs ? arm() : call()), Math.min(leftMs, TIMER_MS_MAX))
      }
      arm()
      return () => clearTimeout(timer)
    },
    soon: (call) => void setImmediate(call),
  }
}

export const systemIds: Ids = {
  fresh: () => randomBytes(12).toString('hex'),
  seed: () => randomInt(2 ** 32),
}
