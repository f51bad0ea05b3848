/** Owns `entracte serve`: reads the configuration, starts the server, says where it is, and stops it when told to. */
import { setTimeout as sleep } from 'node:timers/promises'
import { Command } from 'commander'
import type { Server } from '../main.ts'
import { note, ModelBar, print } from './terminal.ts'
import { EXIT } from './failure.ts'
import { wholeNumber, withConfig, type ConfigOptions } from './options.ts'
import { packageVersion, settingsOf } from './settings.ts'

/** Loading a large model from a slow disk takes a while. */
const JOIN_MS_MAX = 60_000
const POLL_MS = 50

interface ServeOptions extends ConfigOptions { readonly host?: string; readonly port?: number; readonly logLevel?: string }

export const serveCommand = (): Command => withConfig(new Command('serve'))
  .summary('serve one OpenAI-compatible base URL')
  .description('Starts the server: one OpenAI-compatible base URL before the configured engines, by default the embedded one with\n'
    + 'a small model that is fetched at the first start. Stops at SIGINT or SIGTERM; a second one stops at once.')
  .option('--host <host>', 'address to listen on')
  .option('--port <port>', 'port to listen on; 0 takes any free one', wholeNumber(0, 65_535))
  .option('--log-level <level>', 'silent, error, warn, info or debug')
  .action(async (options: ServeOptions) => {
    const { file, config } = settingsOf(options, { listen: { host: options.host, port: options.port }, logLevel: options.logLevel })
    if (file !== null) note(`configuration: ${file}`)
    const { start } = await import('../main.ts')
    const bar = new ModelBar()
    const server = await start(config, { onModelProgress: bar.update }).finally(() => bar.end())
    const told = new AbortController()
    const stopped = untilTold(() => {
      told.abort()
      return server.close()
    })
    const model = await firstModel(server, config.engines.length, told.signal)
    if (!told.signal.aborted) print(greeting(server.url, model, config.tenants.length > 0))
    await stopped
  })

function greeting(url: string, model: string | null, needsKey: boolean): string {
  const body = JSON.stringify({ model: model ?? 'MODEL', messages: [{ role: 'user', content: 'Say hello.' }], max_tokens: 32 })
  const key = needsKey ? " -H 'authorization: Bearer YOUR_KEY'" : ''
  return [
    `entracte ${packageVersion()} serves ${url}/v1`,
    '',
    `  export OPENAI_BASE_URL=${url}/v1`,
    `  curl ${url}/v1/chat/completions${key} -H 'content-type: application/json' \\`,
    `    -d '${body}'`,
    '',
    `  entracte programs --url ${url}`,
  ].join('\n')
}

/** The door opens at once and the engines join behind it; a curl line is of use when one has. */
async function firstModel(server: Server, engines: number, told: AbortSignal): Promise<string | null> {
  const byMs = performance.now() + JOIN_MS_MAX
  note(`the door is open at ${server.url}; waiting for ${engines === 1 ? 'the engine' : 'an engine'} to join`)
  while (performance.now() < byMs && !told.aborted) {
    const joined = [...server.driver.core.engines.values()].find(({ stage }) => stage === 'joined')
    const model = joined?.capabilities.models[0]
    if (model !== undefined) return model
    await sleep(POLL_MS)
  }
  if (!told.aborted) note(`no engine has joined within ${JOIN_MS_MAX / 1_000} s: the log says why, and "entracte doctor" looks at what an engine needs`)
  return null
}

/** Resolves once the first signal's `close` is done; a second signal ends the process. */
function untilTold(close: () => Promise<void>): Promise<void> {
  return new Promise((resolve, reject) => {
    let told = false
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        if (told) process.exit(EXIT.failed)
        told = true
        note(`${signal}: stopping; once more stops at once`)
        close().then(resolve, reject)
      })
    }
  })
}
