/** Owns how the verbs come to a configuration: the file named or found, the environment, and flags over both. */
import { existsSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { loadConfig, type Config, type RawConfig } from '../config.ts'
import type { ConfigOptions } from './options.ts'

/** Read where no file is named. */
const FILE_DEFAULT = 'entracte.yaml'

interface Settings {
  /** Null: defaults and flags only. */
  readonly file: string | null
  readonly config: Config
}

export function settingsOf(options: ConfigOptions, flags: RawConfig = {}): Settings {
  const file = options.config ?? (existsSync(FILE_DEFAULT) ? FILE_DEFAULT : null)
  const engines = options.model === undefined ? undefined : [{ id: 'local', kind: 'embedded', model: options.model }]
  return { file, config: loadConfig(file, process.env, { ...flags, dataDir: options.data, engines }) }
}

/** Version of this package: its manifest lies above the build. */
export function packageVersion(): string {
  for (let folder = import.meta.dirname; folder !== dirname(folder); folder = dirname(folder)) {
    const path = join(folder, 'package.json')
    if (!existsSync(path)) continue
    const manifest: unknown = JSON.parse(readFileSync(path, 'utf8'))
    if (typeof manifest !== 'object' || manifest === null || !('name' in manifest) || manifest.name !== 'entracte') continue
    return 'version' in manifest ? String(manifest.version) : 'unknown'
  }
  return 'unknown'
}
