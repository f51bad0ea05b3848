/** What calls that begin alike share, through the whole server: within a tenant all, between tenants what is public. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { defaultConfig } from '../../src/config.ts'
import { start } from '../../src/main.ts'
import { completion, folder, MODEL, until, type Completion } from './served.ts'

const KEYS = { one: 'the-key-of-one', two: 'the-key-of-two' }
const PUBLIC = 'You are the assistant of this house, and everybody knows what you were told. '.repeat(3)
const SECRET = 'You know what nobody else may know, and you keep it to yourself, always. '.repeat(3)

test('a tenant\'s call reads what another of its calls has read not again, another tenant\'s only what is public', async () => {
  const dataDir = folder()
  const server = await start(defaultConfig({
    dataDir, imagesDir: join(dataDir, 'images'), listen: { port: 0 }, logLevel: 'silent',
    tenants: Object.entries(KEYS).map(([name, key]) => ({ name, key })),
    engines: [{ id: 'local', kind: 'embedded', model: 'tiny', lanes: 6, laneTokens: 1_024, threads: 1, publicPrefixes: [PUBLIC] }],
    core: { residency: 'always-preserve' },
  }))
  const bearer = (tenant: keyof typeof KEYS) => ({ authorization: `Bearer ${KEYS[tenant]}` })
  const asks = (tenant: keyof typeof KEYS, program: string, system: string): Promise<Completion> => completion(server.url, {
    messages: [{ role: 'system', content: system }, { role: 'user', content: 'What do both of us ask?' }], max_tokens: 4, seed: 3,
  }, { ...bearer(tenant), 'x-program-id': program })
  const cached = ({ usage }: Completion): number => usage.prompt_tokens_details.cached_tokens
  try {
    await until(async () => JSON.stringify(await (await fetch(`${server.url}/v1/models`, { headers: bearer('one') })).json()).includes(MODEL), 60_000)
    const first = await asks('one', 'a', SECRET)
    assert.equal(cached(first), 0)
    assert.equal(cached(await asks('one', 'b', SECRET)), first.usage.prompt_tokens - 2)
    assert.equal(cached(await asks('two', 'a', SECRET)), 0)
    await asks('one', 'c', PUBLIC)
    const other = await asks('two', 'c', PUBLIC)
    assert.ok(cached(other) > PUBLIC.length && cached(other) < other.usage.prompt_tokens - 'What do both of us ask?'.length, String(cached(other)))
  } finally {
    await server.close()
  }
})
