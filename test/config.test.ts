/** The configuration: defaults that work, faults that say where, keys that are refused by name. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'
import { ConfigError, defaultConfig, loadConfig, readConfig, type Config, type RawConfig } from '../src/config.ts'
import { CORE_DEFAULTS } from '../src/core/config.ts'

const FILE = '/etc/entracte/entracte.yaml'

const read = (text: string, env: Record<string, string> = {}, flags: RawConfig = {}): Config => readConfig(text, FILE, env, flags)

function faults(text: string, env: Record<string, string> = {}, flags: RawConfig = {}): readonly string[] {
  try {
    read(text, env, flags)
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error))
    return error.faults
  }
  return assert.fail('it was accepted')
}

function folder(t: TestContext): string {
  const at = mkdtempSync(join(tmpdir(), 'config-'))
  t.after(() => rmSync(at, { recursive: true }))
  return at
}

describe('without a file', () => {
  test('there is one embedded engine on loopback, and the core\'s own defaults', () => {
    const config = defaultConfig()
    assert.deepEqual(config.listen, { host: '127.0.0.1', port: 7600 })
    assert.deepEqual(config.core, CORE_DEFAULTS)
    assert.deepEqual(config.engines.map((engine) => [engine.id, engine.kind, engine.kind === 'embedded' && engine.model]), [['local', 'embedded', 'default']])
    assert.deepEqual(config.tenants, [])
    assert.equal(config.limits.bodyBytesMax, 8 * 1024 * 1024)
    assert.equal(config.limits.keepAliveMs, 5_000)
    assert.equal(config.storeFailure, 'pass')
    assert.equal(config.dataDir, join(process.cwd(), '.entracte'))
    assert.equal(config.imagesDir, null)
  })

  test('flags count, and their faults are of the command line', () => {
    assert.equal(defaultConfig({ listen: { port: 1 } }).listen.port, 1)
    assert.throws(() => defaultConfig({ listen: { prot: 1 } }), /command line: listen\.prot is not a known key/)
  })
})

describe('a file', () => {
  test('may be empty, or all comments', () => {
    assert.deepEqual({ ...read('# nothing\n').core }, CORE_DEFAULTS)
    assert.equal(read('').listen.port, 7600)
  })

  test('speaks in seconds and MiB, and the core hears microseconds and bytes', () => {
    const { core, limits } = read(`
core:
  order: plas
  residency: lru-host
  hostMiBMax: 64
  programIdleSeconds: 1.5
  interruptMaxSeconds: 10
  sessionRetentionSeconds: 20
  levelQuantumSeconds: 0.25
  humanTools: [ask]
limits: { bodyMiBMax: 1, queueHoldSeconds: 2, slowReaderSeconds: 3, streamBufferKiBMax: 4, requestSecondsMax: 5 }
`)
    assert.deepEqual(core, {
      ...CORE_DEFAULTS, order: 'plas', residency: 'lru-host', hostBytesMax: 67_108_864, programIdleUs: 1_500_000, interruptMaxUs: 10_000_000,
      sessionRetentionUs: 20_000_000, levelQuantumUs: 250_000, humanTools: ['ask'],
    })
    assert.deepEqual(limits, { bodyBytesMax: 1_048_576, keepAliveMs: 5_000, queueHoldMs: 2_000, streamBufferBytesMax: 4_096, slowReaderMs: 3_000, requestMsMax: 5_000 })
  })

  test('has engines of three kinds', () => {
    const { engines } = read(`
engines:
  - { id: cpu, kind: embedded, model: models/a.gguf, lanes: 4 }
  - { id: play, kind: scripted, script: [{ text: hello }] }
  - { id: far, kind: openai, baseUrl: 'http://10.0.0.1:8000/v1', model: m }
`)
    assert.deepEqual(engines.map((engine) => engine.kind), ['embedded', 'scripted', 'openai'])
    assert.equal(engines[0]?.kind === 'embedded' && engines[0].model, '/etc/entracte/models/a.gguf')
    assert.equal(engines[0]?.kind === 'embedded' && engines[0].laneTokens, 2_048)
    assert.deepEqual(engines[1]?.kind === 'scripted' && engines[1].script, [{ text: 'hello' }])
  })

  test('keeps paths from its own folder, and a script in a file of its own', (t) => {
    const at = folder(t)
    writeFileSync(join(at, 'script.yaml'), '- text: from a file\n')
    writeFileSync(join(at, 'entracte.yaml'), 'dataDir: data\nengines: [{ id: play, kind: scripted, script: script.yaml }]\n')
    const config = loadConfig(join(at, 'entracte.yaml'), {})
    assert.equal(config.dataDir, join(at, 'data'))
    const [engine] = config.engines
    assert.deepEqual(engine?.kind === 'scripted' && engine.script, [{ text: 'from a file' }])
  })

  test('may leave to the store where images lie', () => {
    assert.equal(read('').imagesDir, null)
    assert.equal(read('imagesDir: ram').imagesDir, '/etc/entracte/ram')
  })

  test('is frozen to its leaves', () => {
    const config = read('tenants: [{ name: a, key: 12345678a }]')
    for (const part of [config, config.listen, config.engines, config.engines[0], config.tenants[0], config.core, config.core.humanTools]) assert.ok(Object.isFrozen(part))
  })

  test('keeps no key, only its digest', () => {
    const config = read('tenants: [{ name: a, key: open-sesame, class: batch, deadlineSeconds: 2 }, { name: b, keySha256: ' + 'AB'.repeat(32) + ' }]')
    assert.doesNotMatch(JSON.stringify(config), /open-sesame/)
    assert.deepEqual(config.tenants[0], { name: 'a', class: 'batch', weight: 1, statesDeadlines: false, exactResume: null, keySha256: createHash('sha256').update('open-sesame').digest('hex'), deadlineUs: 2_000_000 })
    assert.equal(config.tenants[1]?.keySha256, 'ab'.repeat(32))
  })
})

describe('a fault', () => {
  const cases: readonly [string, RegExp][] = [
    ['listen:\n  host: 127.0.0.1\n  prot: 1\n', /:3: listen\.prot is not a known key$/],
    ['listn: {}\n', /:1: listn is not a known key$/],
    ['listen:\n  port: 70000\n', /:2: listen\.port .*<=65535/],
    ['listen:\n  port: many\n', /:2: listen\.port expected number, received string/],
    ['core:\n  order: best\n', /:2: core\.order .*"fcfs"/],
    ['core:\n\n  levelCount: 1.5\n', /:3: core\.levelCount /],
    ['engines:\n  - id: a\n    kind: embedded\n  - id: b\n    kind: warp\n', /:5: engines\[1\]\.kind .*'embedded'/],
    ['engines:\n  - kind: embedded\n', /:2: engines\[0\]\.id is missing/],
    ['engines:\n  - { id: a, kind: embedded }\n  - { id: a, kind: embedded }\n', /:3: engines\[1\]\.id is given twice/],
    ['engines:\n  - { id: a, kind: embedded, lane: 3 }\n', /:2: engines\[0\]\.lane is not a known key/],
    ['engines: []\n', /:1: engines .*>=1/],
    ['engines:\n  - { id: a, kind: openai, model: m, baseUrl: "ftp://x" }\n', /:2: engines\[0\]\.baseUrl /],
    ['tenants:\n  - name: a\n    key: 12345678a\n  - name: b\n    key: 12345678a\n', /:4: tenants\[1\]\.keySha256 is given twice/],
    ['tenants:\n  - name: a/b\n    key: 12345678a\n', /:2: tenants\[0\]\.name expected a name/],
    ['tenants:\n  - name: a\n', /:2: tenants\[0\]\.key give either key or keySha256/],
    ['tenants:\n  - name: a\n    key: short\n', /:3: tenants\[0\]\.key .*>=8/],
    ['listen:\n  host: 0.0.0.0\n', /:2: listen\.host is 0\.0\.0\.0, which other machines can reach/],
    ['listen: [1\n', /:\d: /],
    ['listen: 1\nlisten: 2\n', /:2: .*unique/],
    ['- a\n', /:1: expected keys and values/],
    ['dataDir: ${HOME_OF_DATA}\n', /:1: the environment has no HOME_OF_DATA/],
  ]
  for (const [text, expected] of cases) {
    test(`is told with its line and its key: ${JSON.stringify(text).slice(0, 60)}`, () => {
      const told = faults(text)
      assert.ok(told.some((fault) => fault.startsWith(FILE) && expected.test(fault)), told.join('\n'))
    })
  }

  test('of YAML itself is told once', () => {
    assert.equal(faults('listen: { port: ${PORT} }\ndataDir: x\n').length, 1)
  })

  test('names settings of an embedded engine that do not go together', () => {
    const engine = (more: string): readonly string[] => faults(`engines:\n  - id: a\n    kind: embedded\n${more}`)
    assert.match(engine('    flashAttention: exact\n    rowUnit: 2\n').join(), /rowUnit is 2; with flashAttention: exact it must be 1/)
    assert.match(engine('    flashAttention: exact\n    chunkTokens: 127\n').join(), /chunkTokens is 127; with flashAttention: exact it must be at least 128/)
    assert.match(engine('    flashAttention: maybe\n').join(), /flashAttention/)
    assert.match(engine('    kvTypeV: q8_0\n').join(), /:4: engines\[0\]\.kvTypeV is q8_0, which needs flashAttention: true/)
    assert.match(engine('    gpuLayers: 4\n').join(), /:4: engines\[0\]\.gpuLayers is 4, and build is cpu/)
    assert.match(engine('    publicPrefixes: [""]\n').join(), /publicPrefixes\[0\]/)
    assert.match(engine('    publicPrefixes: ["a\\0b"]\n').join(), /without NUL/)
    assert.match(engine('    kvTypeK: q9\n').join(), /:4: engines\[0\]\.kvTypeK/)
    assert.equal(read('engines: [{ id: a, kind: embedded, kvTypeK: q8_0, kvTypeV: q8_0, flashAttention: true, build: auto, gpuLayers: 0 }]\n').engines.length, 1)
  })

  test('does not hide another', () => {
    assert.equal(faults('listen: { port: x }\ncore: { order: y }\nodd: 1\n').length, 3)
  })

  test('of a file that is not there names it', () => {
    assert.throws(() => loadConfig('/nowhere/entracte.yaml', {}), (error) => error instanceof ConfigError && /\/nowhere\/entracte\.yaml: cannot be read/.test(error.message))
  })
})

describe('the environment', () => {
  test('fills values in, as what they look like where unquoted and as text where quoted', () => {
    const config = read('listen:\n  port: ${PORT}\ndataDir: "${BASE}/data"\nlogLevel: ${LEVEL:-warn}\nmetricsKey: "${KEY}"\n', { PORT: '81', BASE: '/srv', KEY: '12345678' })
    assert.deepEqual([config.listen.port, config.dataDir, config.logLevel, config.metricsKey], [81, '/srv/data', 'warn', '12345678'])
  })

  test('cannot change the structure', () => {
    const config = read('dataDir: ${BASE}\n', { BASE: '/a\nstoreFailure: refuse' })
    assert.equal(config.storeFailure, 'pass')
  })

  test('is left alone where a dollar is doubled', () => {
    assert.equal(read('dataDir: /a/$${X}\n').dataDir, '/a/${X}')
  })
})

describe('flags', () => {
  test('with a relative path mean it from the current folder, whatever the file', () => {
    const config = read('dataDir: from-file\n', {}, { imagesDir: 'from-flag', engines: [{ id: 'a', kind: 'embedded', model: 'm.gguf' }] })
    assert.deepEqual([config.dataDir, config.imagesDir], ['/etc/entracte/from-file', join(process.cwd(), 'from-flag')])
    assert.equal(config.engines[0]?.kind === 'embedded' && config.engines[0].model, join(process.cwd(), 'm.gguf'))
  })

  test('win over the file, key by key, and a list whole', () => {
    const config = read('listen: { host: 127.0.0.2, port: 5 }\nengines: [{ id: a, kind: embedded }]\n', {}, { listen: { port: 6 }, engines: [{ id: 'b', kind: 'embedded', model: 'tiny' }], dataDir: undefined })
    assert.deepEqual(config.listen, { host: '127.0.0.2', port: 6 })
    assert.deepEqual(config.engines.map((engine) => engine.id), ['b'])
  })

  test('are told apart from the file when they are wrong', () => {
    const told = faults('listen:\n  host: 5\n', {}, { listen: { port: -1 } })
    assert.ok(told.some((fault) => /^command line: listen\.port/.test(fault)), told.join('\n'))
    assert.ok(told.some((fault) => fault.startsWith(`${FILE}:2: listen.host`)), told.join('\n'))
  })
})

describe('an engine on another machine', () => {
  const engine = (more: string): string => `engines:\n  - id: far\n    kind: remote\n    model: m\n${more}`
  test('is named with a secret, and beyond loopback with TLS or the word that there is none', () => {
    assert.match(faults(engine('    host: 10.0.0.2\n    secret: 0123456789abcdef\n')).join(), /engines\[0\]\.tls is not given, and 10\.0\.0\.2 is another machine: set tls, or say inClear: true/)
    assert.match(faults(engine('    host: 127.0.0.1\n')).join(), /engines\[0\]\.secret give either secret or secretFile/)
    assert.match(faults(engine('    host: 127.0.0.1\n    secret: short\n')).join(), /engines\[0\]\.secret/)
    for (const more of ['    host: 10.0.0.2\n    inClear: true\n', '    host: 10.0.0.2\n    tls: {}\n', '    host: 127.0.0.1\n']) {
      assert.equal(read(engine(`${more}    secret: 0123456789abcdef\n`)).engines[0]?.id, 'far')
    }
  })
})
