import assert from 'node:assert/strict'
import { test } from 'node:test'
import { onAllCores } from '../../bench/threads.ts'

const THREADS = JSON.stringify(new URL('../../bench/threads.js', import.meta.url).href)
const script = new URL(`data:text/javascript,${encodeURIComponent(`
  import { serveTasks } from ${THREADS}
  serveTasks((task) => { if (task < 0) throw new Error('below 0'); return 2 * task })
`)}`)
const never = new AbortController().signal

test('results come in the order of the tasks, each told once', async () => {
  const tasks = [5, 1, 4, 2, 3]
  const told: number[] = []
  assert.deepEqual(await onAllCores<number, number>(script, tasks, (task) => told.push(task), never), [10, 2, 8, 4, 6])
  assert.deepEqual(told.sort(), [1, 2, 3, 4, 5])
})

test('what goes wrong in a thread goes wrong here', () =>
  assert.rejects(onAllCores<number, number>(script, [1, -1, 2], () => {}, never), /below 0/))

test('an abort ends it', async () => {
  const abort = new AbortController()
  const all = onAllCores<number, number>(script, Array.from({ length: 1_000 }, (_, at) => at), () => abort.abort(new Error('enough')), abort.signal)
  await assert.rejects(all, /enough/)
})
