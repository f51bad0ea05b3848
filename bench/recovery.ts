/**
 * Owns the bench of a start after a kill: many live programs, a snapshot and a tail of facts after it, and how long it
 * takes from the start of a process until a new call is accepted. Also what making the next snapshot takes, and holds up.
 */
import { execFileSync } from 'node:child_process'
import { cpSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { fileURLToPath } from 'node:url'
import { columns } from '../src/core/explain/explain-text.ts'
import { takeSnapshot } from '../src/core/snapshot.ts'
import { tenantId } from '../src/core/ids.ts'
import { recordOf } from '../src/driver/working-bodies.ts'
import { estimate, median } from '../src/eval/stats.ts'
import { SnapshotFolder } from '../src/store/snapshot-files.ts'
import { piecesOf } from '../src/store/snapshot-text.ts'
import { inThread, SNAPSHOTS_FOLDER } from '../src/store/snapshot-thread.ts'
import { bar, type Bench, type BenchResult, type BenchWorld } from './bench.ts'
import { Lives } from './lives.ts'
import { scratch, type Scratch } from './scratch.ts'

const PROGRAMS = 100_000
const PROGRAMS_QUICK = 5_000
const TAIL_FACTS = 50_000
const TAIL_FACTS_QUICK = 2_500
const SECONDS_MAX = 3
const STARTS = 3
/** One program in so many has a call in flight, which the start detaches; the others wait for a tool. */
const ASKING_EVERY = 20
/** Of a token record of a few hundred tokens. */
const BODY_BYTES = 1_024

const NOT_MEASURED = [
  'images of KV on host, whose files are read and verified before the first call', 'engines that take long to start',
  'programs of many calls: here each has one in memory', 'KV on devices, which a start lets go or takes over State by State: here all of it was discarded',
  'a cold disk cache: the files were written just before',
  'the pages that explain old programs, which are read while calls are served',
]

export const recovery: Bench = {
  name: 'recovery',
  what: 'from a kill to the next call accepted: 100,000 live programs, snapshot and tail',
  needsModel: false,
  run: async (world) => {
    const place = scratch()
    try {
      const written = await writeLives(world, place)
      const starts: Start[] = []
      for (let count = 0; count < (world.quick ? 1 : STARTS) && !world.signal.aborted; count += 1) {
        const start = startAgain(place)
        starts.push(start)
        world.say(`serving after ${seconds(start.atMs.serving)}, ${seconds(start.processorMs)} of processor`)
      }
      return resultOf(world, written, starts)
    } finally {
      place.remove()
    }
  },
}

interface Written { readonly tailFacts: number; readonly next: Next }

async function writeLives(world: BenchWorld, place: Scratch): Promise<Written> {
  const [programs, tailFacts] = world.quick ? [PROGRAMS_QUICK, TAIL_FACTS_QUICK] : [PROGRAMS, TAIL_FACTS]
  const store = place.open(async (dataDir) => {
    const snapshot = takeSnapshot(lives.core)
    await new SnapshotFolder(join(dataDir, SNAPSHOTS_FOLDER)).write(snapshot.seq, piecesOf(snapshot))
    return { seq: snapshot.seq, atUs: snapshot.atUs, fallback: null, damaged: [] }
  })
  let isTail = false
  let tail = 0
  const lives = new Lives((facts) => {
    if (!isTail) return
    tail += facts.length
    store.log.append(facts, false, () => undefined)
  }, Date.now() * 1_000)
  const live = (): void => {
    if (lives.core.programs.size % ASKING_EVERY === 0) return lives.asks()
    const { last } = lives.waits(1)
    if (last !== null) store.bodies.put(recordOf(last), tenantId('tenant-1'), Buffer.alloc(BODY_BYTES, 1))
  }
  while (lives.core.programs.size < programs - tailFacts / FACTS_A_LIFE) live()
  store.log.snapshot()
  isTail = true
  while (tail < tailFacts) live()
  await store.close()
  world.say(`${lives.core.programs.size} programs live, ${tail} facts after the snapshot`)
  return { tailFacts: tail, next: await nextSnapshot(join(place.folder, 'data')) }
}

interface Next { readonly bytes: number; readonly takesMs: number; readonly holdUpMs: number }

/** On a copy, as a server makes it: how long it takes beside, and the longest that it held up this thread. */
async function nextSnapshot(dataDir: string): Promise<Next> {
  const copy = `${dataDir}-next`
  try {
    cpSync(dataDir, copy, { recursive: true })
    const gaps = monitorEventLoopDelay({ resolution: 1 })
    gaps.enable()
    const beganMs = performance.now()
    const made = await inThread(new URL('../src/snapshot-worker.js', import.meta.url))(copy, AbortSignal.any([]))
    const takesMs = performance.now() - beganMs
    gaps.disable()
    return { bytes: statSync(join(copy, SNAPSHOTS_FOLDER, `${made?.seq ?? 0}.snapshot`)).size, takesMs, holdUpMs: gaps.max / 1e6 }
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

/** About as many does one program of `live` leave. */
const FACTS_A_LIFE = 14

interface Start {
  readonly atMs: { readonly process: number; readonly open: number; readonly recover: number; readonly reign: number; readonly serving: number }
  readonly programs: number
  readonly calls: number
  readonly snapshotSeq: number
  readonly rssBytes: number
  /** All threads together, the collector's too. */
  readonly processorMs: number
}

/** On a copy: a start writes to its log. */
function startAgain(place: Scratch): Start {
  const copy = `${place.folder}-copy`
  try {
    cpSync(join(place.folder, 'data'), join(copy, 'data'), { recursive: true })
    const script = fileURLToPath(new URL('./recovered.js', import.meta.url))
    return JSON.parse(execFileSync(process.execPath, [script, copy], { encoding: 'utf8' })) as Start
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

function resultOf(world: BenchWorld, written: Written, starts: readonly Start[]): BenchResult {
  const took = estimate(starts.map(({ atMs }) => atMs.serving / 1_000), median)
  const part = (of: (at: Start['atMs']) => number): string => seconds(median(starts.map(({ atMs }) => of(atMs))))
  const [first] = starts
  return {
    bars: world.quick ? [] : [bar('serving again', took, 's', `under ${SECONDS_MAX} s`, took.high < SECONDS_MAX)],
    text: columns([
      ['', 'median'],
      ['programs live', String(first?.programs ?? 0)],
      ['facts after the snapshot', String(written.tailFacts)],
      ['snapshot', `${(written.next.bytes / 1e6).toFixed(0)} MB`],
      ['making the next, beside', seconds(written.next.takesMs)],
      ['longest that it held up the serving thread', `${written.next.holdUpMs.toFixed(0)} ms`],
      ['start of the process', part((at) => at.process)],
      ['store opened', part((at) => at.open - at.process)],
      ['snapshot and tail', part((at) => at.recover - at.open)],
      ['reign begun', part((at) => at.reign - at.recover)],
      ['call accepted', part((at) => at.serving - at.reign)],
      ['serving again', part((at) => at.serving)],
      ['processor time, all threads', seconds(median(starts.map(({ processorMs }) => processorMs)))],
    ], 'lr').join('\n'),
    figures: { ...written, starts },
    notMeasured: NOT_MEASURED,
  }
}

const seconds = (ms: number): string => `${(ms / 1_000).toFixed(2)} s`
