import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Fact } from '../../src/core/fact.ts'
import { engineId, moveId, stateId } from '../../src/core/ids.ts'
import { Performer } from '../../src/driver/perform.ts'
import type { EngineCommand, Ports } from '../../src/driver/ports.ts'
import { Streams } from '../../src/driver/streams.ts'
import { byHand } from './by-hand.ts'

const E0 = engineId('e0')
const MOVE = moveId('m')
const STATE = stateId('s')

/** What an engine that has joined is told of a move that failed, and which image goes. */
async function toldOf(failed: Pick<Extract<Fact, { kind: 'kv.move.failed' }>, 'to' | 'sourceLost' | 'dropImage'>): Promise<{ commands: EngineCommand[]; dropped: string[] }> {
  const { driver } = await byHand()
  const commands: EngineCommand[] = []
  const dropped: string[] = []
  const ports = { engines: [{ id: E0, perform: (command: EngineCommand) => void commands.push(command) }], images: { drop: (image: string) => void dropped.push(image) } } as unknown as Ports
  const performer = new Performer(driver.core, ports, new Streams(ports.bodies, ports.clock), () => undefined)
  performer.perform({ seq: 1_000, atUs: 0, version: 1, fact: { kind: 'kv.move.failed', move: MOVE, state: STATE, engine: E0, why: 'x', ...failed } })
  return { commands, dropped }
}

test('a device copy that the ledger counts as lost is discarded on the engine: no lane is held that nobody knows of', async () => {
  const told = await toldOf({ to: 'host', sourceLost: true, dropImage: MOVE })
  assert.deepEqual(told, { commands: [{ kind: 'discard', state: STATE }], dropped: [MOVE] })
})

test('a device copy that stays is left alone', async () => {
  const told = await toldOf({ to: 'host', sourceLost: false, dropImage: MOVE })
  assert.deepEqual(told, { commands: [], dropped: [MOVE] })
})

test('a copy that came in for nobody is discarded', async () => {
  const told = await toldOf({ to: 'device', sourceLost: false, dropImage: null })
  assert.deepEqual(told, { commands: [{ kind: 'discard', state: STATE }], dropped: [] })
})
