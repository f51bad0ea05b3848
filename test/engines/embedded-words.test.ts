import assert from 'node:assert/strict'
import { test } from 'node:test'
import { readSettings } from '../../src/engine/settings.ts'
import { argsOf, type EngineSettings } from '../../src/engines/embedded-words.ts'

test('what the engine is told on its command line it reads as it was meant', () => {
  const settings: EngineSettings = {
    modelPath: '/m.gguf', lanes: 3, laneTokens: 512, threads: 2, chunkTokens: 64, copiesMsMax: 7, flashAttention: true, extraBuffers: false, rowUnit: 4, load: 'read', kvTypeK: 'q8_0',
    kvTypeV: 'q4_0', build: 'auto', gpuLayers: 0, publicPrefixes: ['- begins like an option', '--model', 'two\nlines = "quoted" é'], libraryDir: '/lib', probeCachePath: '/probes',
  }
  const { socketPath: _, modelDigest: __, probe: ___, describe: ____, weigh: _____, listen: ______, ...read } = readSettings(['--socket', '/s', ...argsOf(settings)])
  assert.deepEqual(read, settings)
  const { rowUnit: _r, load: _l, kvTypeK: _k, kvTypeV: _v, build: _b, gpuLayers: _g, publicPrefixes: _p, ...least } = settings
  const standard = readSettings(['--socket', '/s', ...argsOf({ ...least, flashAttention: false, extraBuffers: true, libraryDir: null, probeCachePath: null })])
  assert.deepEqual([standard.load, standard.kvTypeK, standard.build, standard.gpuLayers, standard.publicPrefixes, standard.libraryDir], ['auto', 'f16', 'cpu', null, [], null])
})
