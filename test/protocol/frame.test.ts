import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { encodeFrame, FrameError, FrameReader } from '../../src/protocol/frame.ts'

const messages = fc.array(fc.record({ json: fc.dictionary(fc.string().filter((key) => key !== 'bin' && key !== '__proto__'), fc.jsonValue()), bin: fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 4 }) }), { maxLength: 6 })

test('what is framed comes out whole and in order, wherever the stream is cut', () => {
  fc.assert(fc.property(messages, fc.array(fc.nat(40), { minLength: 1 }), (sent, cuts) => {
    const stream = Buffer.concat(sent.map(({ json, bin }) => encodeFrame(json, bin)))
    const reader = new FrameReader()
    const got = []
    for (let at = 0, turn = 0; at < stream.length; turn += 1) {
      const step = 1 + (cuts[turn % cuts.length] ?? 0)
      got.push(...reader.push(stream.subarray(at, at + step)))
      at += step
    }
    assert.deepEqual(got.map(({ bin }) => bin.map((part) => [...part])), sent.map(({ bin }) => bin.map((part) => [...part])))
    for (const [index, { message }] of got.entries()) {
      const { bin: _bin, ...json } = message as Record<string, unknown>
      assert.deepEqual(JSON.stringify(json), JSON.stringify(sent[index]?.json))
    }
  }))
})

test('a stream that is no frames ends in a FrameError, or waits for more; never in anything else', () => {
  fc.assert(fc.property(fc.uint8Array({ maxLength: 200 }), (noise) => {
    const reader = new FrameReader()
    try {
      for (const frame of reader.push(Buffer.from(noise))) assert.ok('message' in frame)
    } catch (error) {
      assert.ok(error instanceof FrameError, String(error))
    }
  }))
})

test('lengths that do not add up are refused', () => {
  const frame = encodeFrame({ kind: 'x' }, [Buffer.from('abc')])
  const longer = Buffer.concat([frame, Buffer.from('!')])
  longer.writeUInt32LE(longer.length - 4, 0)
  assert.throws(() => [...new FrameReader().push(longer)], FrameError)
})
