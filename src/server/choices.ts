/**
 * Owns the calls of one request that asks for several choices. The first is the call as it would be alone. The others
 * are calls of their own beside it, submitted once it has arrived, so that each is ordered, preempted and resumed as any
 * call is; what they say comes together here.
 *
 * C1 where one of them cannot go on, its word is the last one and the others are hung up.
 * C2 what has hung up submits nothing any more.
 */
import type { CallHandle, CallUpdate, Gateway, Submission } from '../driver/gateway.ts'

export interface ChoiceUpdate { readonly choice: number; readonly update: CallUpdate }

export interface ChoicesHandle {
  readonly updates: AsyncIterable<ChoiceUpdate>
  /** As of one call. */
  hangUp(): void
}

export type Arrived = Extract<CallUpdate, { kind: 'arrived' }>

/** `submissionOf`: of each choice; of every one but the first, with what is known of the first. */
export function submitChoices(
  gateway: Gateway, count: number, submissionOf: (choice: number, first: Arrived | null) => Submission,
): ChoicesHandle {
  const first = gateway.submit(submissionOf(0, null))
  const handles = [first]
  let left = false
  const hangUp = (): void => {
    left = true
    for (const handle of handles) handle.hangUp()
  }
  const submitOthers = (arrived: Arrived): readonly CallHandle[] => {
    if (left) return []
    const others = Array.from({ length: count - 1 }, (_, i) => gateway.submit(submissionOf(i + 1, arrived)))
    handles.push(...others)
    return others
  }
  return { updates: together(first, submitOthers, hangUp), hangUp }
}

interface Said { readonly choice: number; readonly from: AsyncIterator<CallUpdate>; readonly result: IteratorResult<CallUpdate> }

/** In the order in which they come; of each call one is taken at a time, and the next when its place comes. */
async function* together(
  first: CallHandle, submitOthers: (arrived: Arrived) => readonly CallHandle[], hangUp: () => void,
): AsyncGenerator<ChoiceUpdate> {
  const ready: Said[] = []
  let wake = (): void => undefined
  let fault: unknown = null
  const ask = (choice: number, from: AsyncIterator<CallUpdate>): void => {
    void from.next()
      .then((result) => { ready.push({ choice, from, result }) }, (error: unknown) => { fault = error })
      .finally(() => wake())
  }
  const follow = (choice: number, handle: CallHandle): void => ask(choice, handle.updates[Symbol.asyncIterator]())
  follow(0, first)
  for (;;) {
    if (fault !== null) throw fault
    const next = ready.shift()
    if (next === undefined) {
      await new Promise<void>((resolve) => { wake = resolve })
      continue
    }
    const { choice, from, result } = next
    // Without a last word: who reads it knows what that means.
    if (result.done === true) return
    const update = result.value
    if (update.kind === 'arrived' && choice === 0) submitOthers(update).forEach((handle, i) => follow(i + 1, handle))
    if (update.kind === 'refused' || update.kind === 'failed') hangUp()
    yield { choice, update }
    if (update.kind === 'arrived' || update.kind === 'part') ask(choice, from)
  }
}
