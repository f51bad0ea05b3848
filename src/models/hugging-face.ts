/**
 * Owns asking the Hugging Face hub: which GGUF files a repository has, and one of them, with the environment that its
 * own tools read: HF_ENDPOINT (a mirror), HF_TOKEN, HF_HUB_OFFLINE. Leaves the bytes' way to disk to `download.ts`.
 */
import type { Environment } from './cache.ts'
import { AnswerFault, ask, download } from './download.ts'

/** What a listing of a repository may take. */
const LISTING_BYTES_MAX = 16 << 20

interface HubFile {
  readonly repository: string
  readonly revision: string
  readonly file: string
  readonly bytes: number
}

interface HubChoice {
  /** Its path in the repository. */
  readonly file: string
  readonly bytes: number
  /** SHA-256; null where the hub gives none. */
  readonly digest: string | null
}

export interface HubListing {
  /** The commit that was listed, so that a file is fetched from the same. */
  readonly revision: string
  readonly choices: readonly HubChoice[]
}

export const hubEndpoint = (env: Environment): string =>
  (env['HF_ENDPOINT'] || 'https://huggingface.co').replace(/\/+$/, '')

const headersOf = (env: Environment): Record<string, string> =>
  env['HF_TOKEN'] ? { authorization: `Bearer ${env['HF_TOKEN']}` } : {}

const inPath = (text: string): string => text.split('/').map(encodeURIComponent).join('/')

/** The GGUF files of a repository. Throws AnswerFault where the hub refuses, and what else went wrong as it is. */
export async function listHubFiles(
  repository: string, revision: string, env: Environment, signal: AbortSignal | undefined,
): Promise<HubListing> {
  const url = `${hubEndpoint(env)}/api/models/${inPath(repository)}/revision/${encodeURIComponent(revision)}?blobs=true`
  const answer: unknown = JSON.parse(await ask(url, headersOf(env), LISTING_BYTES_MAX, signal))
  const listed = entry(answer)
  if (typeof listed['sha'] !== 'string' || !Array.isArray(listed['siblings'])) {
    throw new Error(`${hubEndpoint(env)} answered with something that is no listing of a repository`)
  }
  const choices = listed['siblings'].map(entry).flatMap((sibling): HubChoice[] => {
    const file = sibling['rfilename']
    if (typeof file !== 'string' || !/\.gguf$/i.test(file)) return []
    const lfs = entry(sibling['lfs'])
    const bytes = [lfs['size'], sibling['size']].find((size) => typeof size === 'number')
    const digest = typeof lfs['sha256'] === 'string' ? lfs['sha256'] : null
    return typeof bytes === 'number' ? [{ file, bytes, digest }] : []
  })
  return { revision: listed['sha'], choices }
}

const entry = (value: unknown): Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null ? value as Readonly<Record<string, unknown>> : {}

/** Fetches what is missing of `part`, which afterwards has the file's size. */
export async function fetchHubFile(
  wanted: HubFile, part: string, env: Environment, signal: AbortSignal | undefined,
  onBytes: (bytes: number, totalBytes: number) => void,
): Promise<void> {
  const { repository, revision, file, bytes } = wanted
  const url = `${hubEndpoint(env)}/${inPath(repository)}/resolve/${encodeURIComponent(revision)}/${inPath(file)}`
  await download({ url, headers: headersOf(env), bytes }, part, signal, onBytes)
}

/** What to do where the hub answered so; null where nothing is known. */
export function nextAfter(fault: unknown, env: Environment): string | null {
  if (!(fault instanceof AnswerFault)) return null
  const hasToken = Boolean(env['HF_TOKEN'])
  switch (fault.status) {
    case 401: return hasToken
      ? 'the token in HF_TOKEN is not valid there, or the repository does not exist; look at both.'
      : 'look whether the name is right; a private or gated repository needs a token in HF_TOKEN.'
    case 403: return 'accept the model\'s terms on its page, with the account whose token is in HF_TOKEN.'
    case 404: return 'look whether owner, repository, revision and file are written as on the model\'s page.'
    case 429: return hasToken ? 'wait some minutes and try again.' : 'wait some minutes, or set HF_TOKEN, which is allowed more.'
    default: return null
  }
}
