/** Owns `entracte demo`: real agent programs on a real model under two policies, and what differed. */
import { Command } from 'commander'

export const demoCommand = (): Command => new Command('demo')
  .summary('run real agent programs under two policies and show what differed')
