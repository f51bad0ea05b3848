/** Owns the options that several verbs share, and how their values are read. */
import { type Command, InvalidArgumentError } from 'commander'
import { DEFAULT_URL } from './server-client.ts'

export const withServer = (command: Command): Command => command
  .option('--url <url>', 'where the server is', DEFAULT_URL)
  .option('--key <key>', 'API key (default: ENTRACTE_KEY from the environment)')

export const withConfig = (command: Command): Command => command
  .option('-c, --config <file>', 'YAML configuration (default: ./entracte.yaml where there is one)')
  .option('--data <folder>', 'folder of log, bodies and snapshots')
  .option('--model <model>', 'serve this one with the embedded engine, instead of the configured engines: a GGUF file, "default", or "tiny"')

export interface ConfigOptions { readonly config?: string; readonly data?: string; readonly model?: string }

export const wholeNumber = (min: number, max = Number.MAX_SAFE_INTEGER) => (text: string): number => {
  const value = Number(text)
  if (!/^\d+$/.test(text) || value < min || value > max) {
    throw new InvalidArgumentError(`expected a whole number ${max === Number.MAX_SAFE_INTEGER ? `of at least ${min}` : `from ${min} to ${max}`}`)
  }
  return value
}
