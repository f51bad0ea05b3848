import assert from 'node:assert/strict'
import { test } from 'node:test'
import koffi from 'koffi'
import { batch, checkLayout, contextParams, LAYOUT_VERSION, modelParams } from '../../src/engine/llama/layout.ts'
import { openLibrary } from '../../src/engine/llama/library.ts'
import { LlamaError } from '../../src/engine/llama/error.ts'

test('the structs have the sizes and places of the C compiler', () => {
  assert.equal(koffi.sizeof(modelParams), 80)
  assert.equal(koffi.offsetof(modelParams, 'tensor_split'), 40)
  assert.equal(koffi.offsetof(modelParams, 'load_mtp'), 77)
  assert.equal(koffi.sizeof(contextParams), 160)
  assert.equal(koffi.offsetof(contextParams, 'cb_eval'), 88)
  assert.equal(koffi.offsetof(contextParams, 'ctx_other'), 152)
  assert.equal(koffi.sizeof(batch), 56)
})

test('the library answers the defaults of the release, and every one that differs is a refusal', () => {
  const { fn } = openLibrary(null)
  const model = fn.modelDefaults()
  const context = fn.contextDefaults()
  checkLayout(fn.version(), model, context)
  const refused = (error: unknown): boolean => error instanceof LlamaError && error.code === 'layout'
  for (const key of Object.keys(model) as (keyof typeof model)[]) {
    assert.throws(() => checkLayout(fn.version(), { ...model, [key]: 77 }, context), refused, key)
  }
  for (const key of Object.keys(context) as (keyof typeof context)[]) {
    assert.throws(() => checkLayout(fn.version(), model, { ...context, [key]: 77 }), refused, key)
  }
})

test('a library of another release is refused by its version', () => {
  const { fn } = openLibrary(null)
  for (const version of ['0.5.0', '0.4.01', '', '0.4']) {
    assert.throws(() => checkLayout(version, fn.modelDefaults(), fn.contextDefaults()),
      (error) => error instanceof LlamaError && error.code === 'layout' && error.message.includes(LAYOUT_VERSION))
  }
})
