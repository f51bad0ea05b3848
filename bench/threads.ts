/** Owns work that is spread over the cores of the machine: tasks that know nothing of each other, one at a time in each thread. */
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { parentPort, Worker } from 'node:worker_threads'

/**
 * What `script`, which calls `serveTasks`, makes of each task, in their order; `done` is told as each is done. Tasks that
 * take long should come first. Rejects with what went wrong in any of them, or where `signal` aborts; no thread is left.
 */
export async function onAllCores<Task, Result>(script: URL, tasks: readonly Task[], done: (task: Task, result: Result) => void, signal: AbortSignal): Promise<Result[]> {
  const results = new Map<number, Result>()
  let next = 0
  const threads = Array.from({ length: Math.min(availableParallelism(), tasks.length) }, () => new Worker(script))
  const work = async (thread: Worker): Promise<void> => {
    while (next < tasks.length) {
      const at = next
      next += 1
      const task = tasks[at] as Task
      const result = await answerOf<Result>(thread, task, signal)
      results.set(at, result)
      done(task, result)
    }
  }
  try {
    await Promise.all(threads.map(work))
  } finally {
    await Promise.all(threads.map((thread) => thread.terminate()))
  }
  return tasks.map((_, at) => results.get(at) as Result)
}

async function answerOf<Result>(thread: Worker, task: unknown, signal: AbortSignal): Promise<Result> {
  signal.throwIfAborted()
  const over = new AbortController()
  const ends = AbortSignal.any([signal, over.signal])
  try {
    const answer = once(thread, 'message', { signal: ends }) as Promise<[Result]>
    const exit = once(thread, 'exit', { signal: ends }).then(([code]) => Promise.reject(new Error(`a thread ended with code ${String(code)}`)))
    thread.postMessage(task)
    const [result] = await Promise.race([answer, exit])
    return result
  } finally {
    over.abort()
  }
}

/** In a thread. */
export function serveTasks<Task, Result>(act: (task: Task) => Result): void {
  parentPort?.on('message', (task: Task) => parentPort?.postMessage(act(task)))
}
