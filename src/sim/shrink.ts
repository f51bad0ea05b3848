/**
 * Owns making a run that fails as small as it goes: fewer faults, fewer agents, fewer steps, one after another for as long
 * as it fails the same way (delta debugging: Zeller and Hildebrandt 2002, the complement half). What is left is a script: a
 * short file that plays the run again.
 */
import type { Occurrence } from './faults.ts'
import type { Settings } from './settings.ts'
import type { Outcome } from './world.ts'

type Play = (settings: Settings) => Promise<Outcome>

interface Shrunk {
  readonly settings: Settings
  readonly outcome: Outcome
  readonly plays: number
}

/** `playsMax`: runs it may cost; at it, what was reached is given. */
export async function shrink(settings: Settings, failed: Outcome, play: Play, playsMax: number, say: (line: string) => void): Promise<Shrunk> {
  const way = wayOf(failed)
  let best: Shrunk = { settings, outcome: failed, plays: 0 }
  let plays = 0
  const attempt = async (smaller: Settings): Promise<boolean> => {
    if (plays >= playsMax) return false
    plays += 1
    const outcome = await play(smaller)
    if (wayOf(outcome) !== way) return false
    best = { settings: smaller, outcome, plays }
    return true
  }
  const told = (what: string): void => {
    const { steps, faults, agents } = best.settings
    say(`${what}: ${steps} steps, ${faults.only?.length ?? 'drawn'} faults, ${agents?.length ?? 'all'} agents (${plays} runs)`)
  }
  await attempt({ ...settings, faults: { rates: {}, only: failed.faults }, agents: failed.agentNumbers })
  for (let before = -1; before !== sizeOf(best.settings) && plays < playsMax;) {
    before = sizeOf(best.settings)
    await fewer<Occurrence>(best.settings.faults.only ?? [], (only) => attempt({ ...best.settings, faults: { rates: {}, only } }))
    told('fewer faults')
    await fewer(best.settings.agents ?? [], (agents) => attempt({ ...best.settings, agents }))
    told('fewer agents')
    await fewerSteps(() => best, attempt)
    told('fewer steps')
  }
  return { ...best, plays }
}

/** How it failed, without the names that differ from run to run. */
function wayOf({ failure }: Outcome): string {
  if (failure === null) return 'not'
  const line = failure.what.split('\n')[0] ?? ''
  return `${failure.invariant} ${line.replace(/\([^)]*\)/g, '').replace(/[a-z]*-?\d[\w.-]*/g, '#').slice(0, 60)}`
}

const sizeOf = ({ steps, faults, agents }: Settings): number => steps + (faults.only?.length ?? 0) + (agents?.length ?? 0)

async function fewerSteps(best: () => Shrunk, attempt: (smaller: Settings) => Promise<boolean>): Promise<void> {
  const { settings, outcome } = best()
  // Up to where it failed, where it failed before all was healed.
  if (outcome.failure !== null && outcome.failure.step < settings.steps) await attempt({ ...settings, steps: outcome.failure.step + 1 })
  let low = 0
  for (let high = best().settings.steps; high - low > 1;) {
    const middle = (low + high) >> 1
    if (await attempt({ ...best().settings, steps: middle })) high = middle
    else low = middle
  }
}

/** Leaves out one part of `all` after another, each half as large as the last, down to single ones. */
async function fewer<T>(all: readonly T[], attempt: (fewer: readonly T[]) => Promise<boolean>): Promise<void> {
  let left = all
  if (left.length > 0 && await attempt([])) return
  for (let size = left.length >> 1; size >= 1; size >>= 1) {
    for (let from = 0; from < left.length;) {
      const rest = [...left.slice(0, from), ...left.slice(from + size)]
      if (await attempt(rest)) left = rest
      else from += size
    }
  }
}

// ---------------------------------------------------------------- scripts

/** A file for people and for the test that plays it: what it showed, then all that decides it. */
export function scriptOf({ settings, outcome }: Shrunk): string {
  const { faults, ...rest } = settings
  const only = (faults.only ?? []).map((occurrence) => `    ${JSON.stringify(occurrence)}`).join(',\n')
  const head = JSON.stringify({ showed: outcome.failure?.what.split('\n')[0] ?? 'nothing', ...rest }, null, 2)
  return `${head.slice(0, -2)},\n  "faults": [\n${only}\n  ]\n}\n`
}

export function settingsOfScript(text: string): Settings {
  const { showed: _, faults, ...rest } = JSON.parse(text) as Omit<Settings, 'faults'> & { readonly showed: string; readonly faults: readonly Occurrence[] }
  return { ...rest, faults: { rates: {}, only: faults } }
}
