/** Lanes that run out under the real engine: a decision about the worst-ranked, never an error to a client. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Fact } from '../../src/core/fact.ts'
import { completion, proven, served, until } from './served.ts'

const CALLS = 20
const LANES = 4
/** Levels of a few batches, so that who comes new outranks who has run for a while; and nobody is spared. */
const EAGER = { order: 'plas', levelQuantumSeconds: 0.01, preemptGainSeconds: 0, preemptionRestSeconds: 0, preemptionsMax: 8 }

/** Of every size: some end at once, some outgrow the grant they start with (256 tokens). */
const chatOf = (number: number): { messages: object[]; max_tokens: number; seed: number; temperature: number; ignore_eos: true } => ({
  messages: [{ role: 'user', content: `Call ${number}. ${'word '.repeat((number * 37) % 200)}` }],
  max_tokens: [3, 30, 140, 290][number % 4] ?? 3, seed: number, temperature: 0.8, ignore_eos: true,
})

for (const residency of ['least-cost', 'always-discard']) {
  test(`${CALLS} calls on ${LANES} lanes end with the tokens they have alone, whoever gives way (${residency})`, async () => {
    const server = await served({ ...EAGER, residency }, { lanes: LANES })
    await proven(server)
    const facts: Fact[] = []
    server.driver.watch(({ fact }) => void facts.push(fact))
    const ask = async (number: number): Promise<string> => (await completion(server.url, chatOf(number))).choices[0]?.message.content ?? ''
    const numbers = Array.from({ length: CALLS }, (_, number) => number)
    const crowded = await Promise.all(numbers.map(async (number) => {
      await new Promise((resolve) => setTimeout(resolve, number * 25))
      return await ask(number)
    }))
    const of = <Kind extends Fact['kind']>(kind: Kind): Extract<Fact, { kind: Kind }>[] => facts.filter((fact): fact is Extract<Fact, { kind: Kind }> => fact.kind === kind)
    const preempted = of('call.preempted')
    assert.ok(preempted.length > 0, 'somebody gave way')
    for (const fact of preempted) assert.match(fact.why, /memory|grow/)
    assert.ok(of('call.paused').length > 0, 'by a pause')
    assert.deepEqual([...of('call.failed'), ...of('call.retried'), ...of('call.refused')], [], 'no call failed, and none needed another attempt')
    await until(() => [...server.driver.core.engines.values()].every((engine) => engine.ownedGranules === 0 && engine.sequencesUsed === 0))
    for (const number of numbers) assert.equal(crowded[number], await ask(number), `call ${number}`)
    await server.close()
  })
}
