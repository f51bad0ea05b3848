/** A driver on the scripted engine and a memory store, for tests: submit, follow, look. */
import { after } from 'node:test'
import { CORE_DEFAULTS, type CoreConfig } from '../../src/core/config.ts'
import { tenantId, type TenantId } from '../../src/core/ids.ts'
import type { Claims } from '../../src/core/input.ts'
import { Driver } from '../../src/driver/driver.ts'
import type { CallHandle, CallUpdate, Submission } from '../../src/driver/gateway.ts'
import type { EnginePort } from '../../src/driver/ports.ts'
import { nextSnapshot, recover } from '../../src/driver/recover.ts'
import { systemClock, systemIds } from '../../src/driver/system.ts'
import { readScript } from '../../src/engines/script-file.ts'
import { createScriptedEngine, type ScriptedEngine } from '../../src/engines/scripted.ts'
import { MemoryDisk, memoryStore } from '../../src/store/memory.ts'

/** What a failed test left open ends with the file. */
const open = new Set<House>()
after(async () => { for (const one of open) await one.close() })

export interface House {
  readonly driver: Driver
  readonly disk: MemoryDisk
  readonly fatal: Error[]
  /** Drops everything that is not durable, as a kill would. */
  kill(): void
  close(): Promise<void>
}

export const LOCAL: TenantId = tenantId('local')

export const scripted = (script: Record<string, unknown>): ScriptedEngine => createScriptedEngine({ id: 'e', script: readScript({ models: ['m'], ...script }) })

export async function house(
  script: Record<string, unknown>, core: Partial<CoreConfig> = {}, disk = new MemoryDisk(), storeFailure: 'pass' | 'refuse' = 'refuse',
  engine: EnginePort = scripted(script),
): Promise<House> {
  const fatal: Error[] = []
  let built: Driver | null = null
  const store = memoryStore({ disk, nextSnapshot, onFailure: () => built?.storeFailed() })
  const config = { ...CORE_DEFAULTS, ...core }
  const recovered = recover(config, store.log)
  const driver = new Driver(
    { clock: systemClock(recovered.core.nowUs, recovered.core.wallOffsetUs), ids: systemIds, log: store.log, bodies: store.bodies, images: store.images, engines: [engine] },
    { checkEveryTurns: 1, onFatal: (error) => fatal.push(error), storeFailure, snapshotEveryFacts: 25 },
    recovered,
  )
  built = driver
  await driver.start()
  // The scripted engine's timers let a process end; a test waits for them.
  const alive = setInterval(() => undefined, 1_000)
  await until(() => [...driver.core.engines.values()].some((one) => one.stage === 'joined'))
  const made: House = {
    driver, disk, fatal,
    kill() {
      open.delete(made)
      clearInterval(alive)
      store.crash()
      void driver.stop()
    },
    async close() {
      open.delete(made)
      clearInterval(alive)
      await driver.stop()
      await store.close()
    },
  }
  open.add(made)
  return made
}

export async function until(holds: () => boolean, ms = 5_000): Promise<void> {
  const by = Date.now() + ms
  while (!holds()) {
    if (Date.now() > by) throw new Error(`not within ${ms} ms: ${holds.toString()}`)
    await new Promise((resolve) => setTimeout(resolve, 2))
  }
}

export type Message = { role: 'system' | 'user' | 'assistant' | 'tool'; content: string; toolCalls?: { id: string; name: string; arguments: string }[]; toolCallId?: string | null }

let fresh = 0
export function submission(messages: Message[], claims: Partial<Claims> = {}, more: Partial<Submission> = {}): Submission {
  const results = []
  for (let at = messages.length - 1; at >= 0 && messages[at]?.role === 'tool'; at -= 1) results.unshift(messages[at]?.toolCallId ?? '')
  fresh += 1
  return {
    tenant: LOCAL, model: 'm', digest: `digest-${fresh}`, promptTokensEstimate: 50, maxTokens: 64, seed: 1, exactResume: null,
    priorityClass: 'default', deadlineUs: null,
    claims: {
      identity: { source: claims.program === undefined && claims.session === undefined ? 'anonymous' : 'explicit', confidence: 100 },
      program: null, thread: null, session: null, parent: null, node: null, parents: [], epoch: null, final: false, toolResults: results, kind: 'test', ...claims,
    },
    body: JSON.stringify({
      model: 'm', messages: messages.map((message) => ({ toolCalls: [], toolCallId: null, ...message })), tools: [], toolChoice: 'auto',
      sampling: { temperature: 0, topP: 1, topK: 0, minP: 0 }, stop: [], maxTokens: null,
    }),
    ...more,
  }
}

export interface Answer { text: string; last: CallUpdate; first: Extract<CallUpdate, { kind: 'arrived' }> | null; toolCalls: { name: string; arguments: string }[] }

export async function follow(handle: CallHandle): Promise<Answer> {
  let text = ''
  let first: Answer['first'] = null
  const toolCalls: Answer['toolCalls'] = []
  for await (const update of handle.updates) {
    if (update.kind === 'arrived') first = update
    else if (update.kind === 'part' && update.part.kind === 'text') text += update.part.text
    else if (update.kind === 'part' && update.part.kind === 'toolCall') {
      const call = toolCalls[update.part.index] ??= { name: '', arguments: '' }
      if (update.part.name !== null) call.name = update.part.name
      call.arguments += update.part.arguments
    } else if (update.kind !== 'part') return { text, last: update, first, toolCalls }
  }
  throw new Error('the updates ended without a last one')
}
