/**
 * Owns the rules about who may import whom: the directions of the layers, cycles, third-party packages, and exports
 * that nobody takes.
 */
import { builtinModules } from 'node:module'
import { resolveImport, type SourceFile } from './modules.ts'
import type { Complaint } from './rules.ts'

/** What a layer may import, as path prefixes below src/ without `.ts`; `types:` allows types only. */
type Allowed = readonly string[]

/** Values of the core that are vocabulary, not decisions: the makers of ids, units, assertions, and the empty ledger. */
const VOCABULARY = ['core/ids', 'core/units', 'core/assert', 'core/state']

export const LAYERS: Readonly<Record<string, Allowed | 'all'>> = {
  core: [],
  protocol: ['core/ids', 'core/units'],
  driver: ['core'],
  engines: ['driver/ports', ...VOCABULARY, 'types:core', 'protocol'],
  store: ['driver/ports', ...VOCABULARY, 'types:core', 'protocol'],
  server: ['driver', 'protocol', ...VOCABULARY, 'types:core'],
  engine: ['protocol'],
  models: [],
  cores: [],
  config: ['core', 'protocol', 'cores'],
  eval: ['core/explain', ...VOCABULARY, 'types:core', 'client', 'protocol', 'types:driver'],
  sim: ['core', 'driver'],
  client: ['protocol'],
  main: 'all',
  'snapshot-worker': ['driver', 'store'],
  cli: 'all',
}

/** Who owns each third-party package. One folder each, so that it can be replaced in one place. */
export const PACKAGES: Readonly<Record<string, readonly string[]>> = {
  'koffi': ['engine'],
  '@huggingface/jinja': ['engine'],
  'libsql': ['store'],
  'fastify': ['server'],
  'prom-client': ['server'],
  'pino': ['server'],
  'commander': ['cli'],
  'zod': ['protocol', 'config'],
  'yaml': ['config'],
  'undici': ['engines'],
  'eventsource-parser': ['engines'],
}

/** Layer of a file below src/: its folder, or its own name at the top. */
const layerOf = (path: string): string => (path.split('/')[1] ?? '').replace(/\.ts$/, '')

const allows = (allowed: Allowed, below: string, typeOnly: boolean): boolean => allowed.some((entry) => {
  const typesOnly = entry.startsWith('types:')
  const prefix = typesOnly ? entry.slice('types:'.length) : entry
  const inside = below === prefix || below.startsWith(`${prefix}/`) || below.startsWith(`${prefix}-`)
  return inside && (typeOnly || !typesOnly)
})

export function directions(files: readonly SourceFile[]): Complaint[] {
  const known = new Set(files.map((file) => file.path))
  const found: Complaint[] = []
  for (const file of files) {
    for (const taken of file.imports) {
      const target = resolveImport(file, taken.specifier)
      if (target === null) continue
      const at = { path: file.path, line: taken.line }
      if (!known.has(target)) found.push({ ...at, message: `imports ${target}, which is not there: the path ends in .ts and stays in the repository` })
      else if (file.path.startsWith('src/')) found.push(...direction(at, layerOf(file.path), target, taken.typeOnly))
    }
  }
  return found
}

function direction(at: { path: string; line: number }, layer: string, target: string, typeOnly: boolean): Complaint[] {
  if (!target.startsWith('src/')) return [{ ...at, message: `imports ${target}: src stands alone; move what it needs below src` }]
  const to = layerOf(target)
  if (to === layer) return []
  if (to === 'cli' || (to === 'main' && layer !== 'cli')) {
    return [{ ...at, message: `imports ${to}: nothing may; take what you need as an argument` }]
  }
  const allowed = LAYERS[layer]
  if (allowed === undefined) return [{ ...at, message: `is in ${layer}, a layer without directions: add it to LAYERS and to ARCHITECTURE.md` }]
  if (allowed === 'all') return []
  const below = target.slice('src/'.length).replace(/\.ts$/, '')
  if (allows(allowed, below, typeOnly)) return []
  const asType = allows(allowed, below, true)
  const may = allowed.length === 0 ? 'nothing of ours' : allowed.join(', ')
  return [{
    ...at,
    message: asType
      ? `imports values of ${below}: ${layer} may take its types only (import type)`
      : `imports ${below}: ${layer} may import ${may}; turn the dependency round with a port or an argument`,
  }]
}

export function cycles(files: readonly SourceFile[]): Complaint[] {
  const edges = new Map(files.map((file) => [file.path, file.imports.flatMap(({ specifier }) => resolveImport(file, specifier) ?? [])]))
  const done = new Set<string>()
  const found: Complaint[] = []
  const visit = (path: string, trail: readonly string[]): void => {
    const begins = trail.indexOf(path)
    if (begins >= 0) {
      const round = [...trail.slice(begins), path].join(' -> ')
      found.push({ path, line: 1, message: `is in a cycle: ${round}; move what both need into a file of its own` })
    }
    if (begins >= 0 || done.has(path)) return
    for (const next of edges.get(path) ?? []) visit(next, [...trail, path])
    done.add(path)
  }
  for (const { path } of files) visit(path, [])
  return found
}

export const packageOf = (specifier: string): string => specifier.split('/').slice(0, specifier.startsWith('@') ? 2 : 1).join('/')

export function packages(files: readonly SourceFile[], dependencies: readonly string[]): Complaint[] {
  const found: Complaint[] = []
  const used = new Set<string>()
  for (const file of files) {
    for (const { specifier, line } of file.imports) {
      if (specifier.startsWith('.') || specifier.startsWith('node:')) continue
      const name = packageOf(specifier)
      used.add(name)
      if (builtinModules.includes(specifier)) found.push({ path: file.path, line, message: `imports ${specifier}: write node:${specifier}` })
      else if (file.path.startsWith('src/')) found.push(...owner(file, line, name))
    }
  }
  for (const name of dependencies) {
    if (!used.has(name)) found.push({ path: 'package.json', line: 1, message: `depends on ${name}, which nobody imports: remove it` })
  }
  return found
}

function owner(file: SourceFile, line: number, name: string): Complaint[] {
  const owners = PACKAGES[name]
  if (owners === undefined) return [{ path: file.path, line, message: `imports ${name}, which no folder owns: do without it, or add it to PACKAGES` }]
  if (owners.includes(layerOf(file.path))) return []
  return [{ path: file.path, line, message: `imports ${name}, which belongs to src/${owners.join(' and src/')}: ask that layer for what you need` }]
}

/** An export counts as used where any other file takes its name. */
export function unusedExports(files: readonly SourceFile[]): Complaint[] {
  const taken = new Map<string, Set<string>>()
  for (const file of files) {
    for (const { specifier, names } of file.imports) {
      const target = resolveImport(file, specifier)
      if (target === null || target === file.path) continue
      const words = names ?? file.code.filter((token) => token.kind === 'word').map((token) => token.text)
      const known = taken.get(target) ?? new Set()
      for (const word of words) known.add(word)
      taken.set(target, known)
    }
  }
  return files.filter((file) => file.path.startsWith('src/')).flatMap((file) => file.exports
    .filter(({ name }) => taken.get(file.path)?.has(name) !== true)
    .map(({ name, line }) => ({ path: file.path, line, message: `exports ${name}, which no other file uses: remove the word export, or the thing` })))
}

/** A barrel hides who needs whom. */
export const barrels = (files: readonly SourceFile[]): Complaint[] => files.flatMap((file) => file.imports
  .filter(({ star }) => star && file.path.startsWith('src/'))
  .map(({ line, specifier }) => ({ path: file.path, line, message: `re-exports all of ${specifier}: import it where it is used` })))
