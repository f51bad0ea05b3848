/** Owns `entracte engine`: serves one engine of the configuration to a control plane on another machine. */
import { join } from 'node:path'
import { Command } from 'commander'
import type { EngineConfig } from '../config.ts'
import { hostEngine } from '../engines/engine-host.ts'
import { cacheDirectory, PROBES_FILE } from '../models/cache.ts'
import { resolveModel } from '../models/resolve.ts'
import { isLoopbackName } from '../server/auth.ts'
import { CliFailure, EXIT } from './failure.ts'
import { withConfig, type ConfigOptions } from './options.ts'
import { settingsOf } from './settings.ts'
import { ModelBar, note } from './terminal.ts'

interface EngineOptions extends ConfigOptions {
  readonly listen: string
  readonly secretFile: string
  readonly tlsCert?: string
  readonly tlsKey?: string
  readonly inClear: boolean
  readonly engine?: string
}

export const engineCommand = (): Command => withConfig(new Command('engine'))
  .summary('serve an engine to a control plane on another machine')
  .description('Serves one embedded engine, with its settings from the configuration, to a control plane whose configuration has an engine of\n'
    + 'kind "remote" with this address. Both prove to each other that they know the secret; it is never sent.')
  .requiredOption('--listen <host:port>', 'where to listen')
  .requiredOption('--secret-file <file>', 'what both sides know, at least 16 characters')
  .option('--tls-cert <file>', 'certificate for TLS, PEM')
  .option('--tls-key <file>', 'its key, PEM')
  .option('--in-clear', 'listen beyond loopback without TLS: prompts and answers can be read on the way', false)
  .option('--engine <id>', 'which engine of the configuration (default: the only embedded one)')
  .action(async (options: EngineOptions) => {
    const { config } = settingsOf(options)
    const engine = engineOf(config.engines.filter((one) => one.kind === 'embedded'), options.engine)
    const { host, port } = whereOf(options)
    const { tlsCert, tlsKey } = options
    const tls = tlsCert === undefined || tlsKey === undefined ? null : { certFile: tlsCert, keyFile: tlsKey }
    if (tls === null && (tlsCert ?? tlsKey) !== undefined) throw wrong('--tls-cert and --tls-key go together', 'give both.')
    if (tls === null && !options.inClear && !isLoopbackName(host)) {
      throw wrong(`${host} can be reached by other machines, and there is no TLS`, 'give --tls-cert and --tls-key, or say --in-clear.')
    }
    const bar = new ModelBar()
    const model = await resolveModel({ model: engine.model, env: process.env, onProgress: bar.update }).finally(() => bar.end())
    const served = hostEngine({
      ...engine, modelPath: model.path, libraryDir: engine.library, probeCachePath: join(cacheDirectory(process.env), PROBES_FILE),
      listen: { host, port }, secretFile: options.secretFile, tls,
    }, note)
    for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => served.close())
    await served.ended.catch((error: unknown) => {
      throw new CliFailure(EXIT.failed, 'the engine cannot serve', error instanceof Error ? error.message : String(error), 'correct what it names.')
    })
  })

type Embedded = Extract<EngineConfig, { kind: 'embedded' }>

function engineOf(engines: readonly Embedded[], id: string | undefined): Embedded {
  const found = engines.filter((one) => id === undefined || one.id === id)
  const [engine] = found
  if (engine !== undefined && found.length === 1) return engine
  throw wrong(id === undefined ? `the configuration has ${found.length} embedded engines` : `the configuration has no embedded engine "${id}"`, 'name one of them with --engine.')
}

function whereOf({ listen }: EngineOptions): { host: string; port: number } {
  const [, host, port] = /^\[?([^\]]+?)\]?:(\d{1,5})$/.exec(listen) ?? []
  if (host === undefined || Number(port) > 65_535) throw wrong(`--listen ${listen} is not HOST:PORT`, 'for example --listen 127.0.0.1:7601')
  return { host, port: Number(port) }
}

const wrong = (what: string, next: string): CliFailure => new CliFailure(EXIT.usage, what, null, next)
