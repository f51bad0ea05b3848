/** Owns the entry of the threads of the bench of orders. */
import { runSeed, type SeedTask } from './orders-run.ts'
import { serveTasks } from './threads.ts'

serveTasks((task: SeedTask) => runSeed(task))
