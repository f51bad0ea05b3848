/** The door as the tests open it: small limits, no log, and what a test changes. */
import { createHash } from 'node:crypto'
import type { TestContext } from 'node:test'
import type { LightMyRequestResponse } from 'fastify'
import { buildApp, type AppOptions } from '../../src/server/app.ts'
import type { TenantKey } from '../../src/server/auth.ts'
import type { DoorLimits } from '../../src/server/door.ts'
import type { FakeGateway } from './fake-gateway.ts'

const LIMITS: DoorLimits = {
  bodyBytesMax: 64 * 1024, keepAliveMs: 40, queueHoldMs: 60_000, streamBufferBytesMax: 64 * 1024, slowReaderMs: 30_000, requestMsMax: 5_000,
}

export type App = ReturnType<typeof buildApp>
export type Reply = LightMyRequestResponse

export function appOf(t: TestContext, gateway: FakeGateway, more: Partial<AppOptions> & { readonly limit?: Partial<DoorLimits> } = {}): App {
  const { limit, ...options } = more
  const app = buildApp({ gateway, host: '127.0.0.1', tenants: [], limits: { ...LIMITS, ...limit }, metricsKey: null, adminKey: null, snapshots: { count: 2, lost: 1 }, log: null, ...options })
  t.after(() => app.close())
  return app
}

/** The base URL of a real listener. */
export const listening = (app: App): Promise<string> => app.listen({ host: '127.0.0.1', port: 0 })

export const tenantKey = (name: string, key: string, more: Partial<TenantKey> = {}): TenantKey =>
  ({ name, keySha256: createHash('sha256').update(key).digest('hex'), class: 'default', deadlineUs: null, statesDeadlines: false, exactResume: null, ...more })

export const bearer = (key: string): { authorization: string } => ({ authorization: `Bearer ${key}` })

export const USER = { role: 'user', content: 'Say hello.' }

export const chatBody = (more: object = {}): object => ({ model: 'tiny', messages: [USER], ...more })

export function post(app: App, body: object, headers: Record<string, string> = {}): Promise<Reply> {
  return app.inject({ method: 'POST', url: '/v1/chat/completions', payload: body, headers })
}

/** The JSON of every event of a stream; `[DONE]` as it stands, comments left out. */
export function eventsOf(text: string): unknown[] {
  return text.split('\n\n').filter((block) => block.startsWith('data: ')).map((block) => block.slice('data: '.length))
    .map((data) => (data === '[DONE]' ? data : JSON.parse(data)))
}
