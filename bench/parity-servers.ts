/** Owns the servers that `engine-parity` compares: how each is started, and how a place in it is named. */
import { availableParallelism } from 'node:os'
import type { BenchWorld } from './bench.ts'
import { startPeer } from './peer.ts'
import { serve } from './served.ts'

export const OURS = ['exact', 'plain'] as const
export const PEERS = ['peer, as it comes', 'peer, in lanes'] as const
export type Ours = (typeof OURS)[number]
export type PeerArm = (typeof PEERS)[number]
export type ArmName = Ours | PeerArm
export const ARMS: readonly ArmName[] = [...OURS, ...PEERS]

/** A model, and the room that its contexts need. */
export interface Served {
  /** As a configuration says it. */
  readonly model: string
  /** As a client asks for it. */
  readonly name: string
  readonly path: string
  readonly lanes: number
  readonly laneTokens: number
  /** What it puts out is no message: the peer would end with an error where it looks for one. */
  readonly isNoise: boolean
}

export interface Arm {
  readonly name: ArmName
  readonly url: string
  readonly model: string
  /** What names the same place of the server for the same context. */
  request(context: number): { readonly headers: Readonly<Record<string, string>>; readonly fields: object }
  close(): Promise<void>
}

export async function startArm(world: BenchWorld, name: ArmName, served: Served): Promise<Arm> {
  world.say(`starting: ${name}, ${served.name}`)
  const { path, name: model } = served
  if (name === 'exact' || name === 'plain') {
    const server = await serve(configOf(name, served), world.signal)
    return { name, model, ...server, request: (context) => ({ headers: { 'x-program-id': `context-${context}` }, fields: { ignore_eos: true } }) }
  }
  const inLanes = name === 'peer, in lanes'
  const flags = [...(inLanes ? lanesFlags(served) : []), ...(served.isNoise ? ['--skip-chat-parsing'] : [])]
  const server = await startPeer(path, flags, world.signal)
  return { name, model, ...server, request: (context) => ({ headers: {}, fields: { ignore_eos: true, ...(inLanes ? { id_slot: context } : {}) } }) }
}

/** A place for every context, each with cells of its own, as ours has. */
const lanesFlags = ({ lanes, laneTokens }: Served): readonly string[] =>
  ['-np', String(lanes), '--no-kv-unified', '-c', String(lanes * laneTokens), '-t', String(availableParallelism()), '--cache-ram', '0']

/** Flash attention, exact or as it comes, and chunks as long as the peer's. One lane is spare. */
const configOf = (name: Ours, { model, lanes, laneTokens }: Served): Readonly<Record<string, unknown>> => ({
  engines: [{
    id: 'local', kind: 'embedded', model, lanes: lanes + 1, laneTokens, threads: availableParallelism(),
    chunkTokens: 512, flashAttention: name === 'exact' ? 'exact' : true,
  }],
  core: { residency: 'always-preserve', exactResume: name === 'exact' },
})
