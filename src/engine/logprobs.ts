/**
 * Owns how likely a token was: natural logarithms of the model's own distribution, from the logits of its row as the
 * library gave them, before penalties, bias, temperature and grammar. Of equal ones the lower id comes first.
 */
import type { WireLogprob } from '../protocol/engine.ts'

/** What stands for no chance at all, which JSON cannot write. */
const LEAST = -9_999

export function logprobOf(
  logits: Float32Array, token: number, top: number, spell: (token: number) => Uint8Array,
): WireLogprob {
  const whole = logOfSum(logits)
  const one = (id: number) => ({ bytes: [...spell(id)], logprob: Math.max(LEAST, (logits[id] ?? -Infinity) - whole) })
  return { ...one(token), top: likeliest(logits, top).map(one) }
}

function logOfSum(logits: Float32Array): number {
  let most = -Infinity
  for (const logit of logits) if (logit > most) most = logit
  let sum = 0
  for (const logit of logits) sum += Math.exp(logit - most)
  return most + Math.log(sum)
}

function likeliest(logits: Float32Array, count: number): number[] {
  const best: number[] = []
  if (count === 0) return best
  for (let token = 0; token < logits.length; token++) {
    const logit = logits[token] ?? -Infinity
    if (best.length === count && logit <= (logits[best[count - 1] ?? 0] ?? -Infinity)) continue
    let at = best.length
    while (at > 0 && (logits[best[at - 1] ?? 0] ?? -Infinity) < logit) at--
    best.splice(at, 0, token)
    if (best.length > count) best.pop()
  }
  return best
}
