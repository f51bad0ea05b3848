/** Owns `entracte serve`: reads the configuration, starts the server, says where it is, and stops it when told to. */
import { Command } from 'commander'
import { note, ModelBar, print } from './terminal.ts'
import { EXIT } from './failure.ts'
import { wholeNumber, withConfig, type ConfigOptions } from './options.ts'
import { packageVersion, settingsOf } from './settings.ts'

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
    const stopped = untilTold(() => server.close())
    print(await greeting(server.url, config.tenants.length > 0))
    await stopped
  })

async function greeting(url: string, needsKey: boolean): Promise<string> {
  const model = needsKey ? null : await firstModel(url)
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

async function firstModel(url: string): Promise<string | null> {
  const answer: unknown = await (await fetch(`${url}/v1/models`)).json()
  if (typeof answer !== 'object' || answer === null || !('data' in answer) || !Array.isArray(answer.data)) return null
  const [first] = answer.data as readonly { readonly id?: unknown }[]
  return typeof first?.id === 'string' ? first.id : null
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
