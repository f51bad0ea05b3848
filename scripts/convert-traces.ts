/**
 * Owns how `data/traces/programs` and `data/traces/arrivals` came to be: `node dist/scripts/convert-traces.js FOLDER` reads
 * the records that were taken from public traces (one JSON object a program, `README.md` of `data/traces` says from
 * where) and writes them here, smaller. Only sources whose licence lets us pass them on are named below.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

interface Source { readonly source: string; readonly origin: string; readonly commit: string; readonly licence: string }

const SOURCES: readonly Source[] = [
  { source: 'claude-code-weka', origin: 'callanjfox/kv-cache-tester, traces/', commit: '94f6046', licence: 'Apache-2.0' },
  { source: 'hotpotqa-react', origin: 'noahshinn/reflexion, hotpotqa_runs/root/ReAct/base, trial 1', commit: '218cf0e', licence: 'MIT' },
  { source: 'hotpotqa-reflexion', origin: 'noahshinn/reflexion, hotpotqa_runs/root/ReAct/reflexion, trials 1 to 5', commit: '218cf0e', licence: 'MIT' },
  { source: 'lats-hotpot-tree', origin: 'lapisrocks/LanguageAgentTreeSearch, hotpot/tot_10it.log', commit: '853d816', licence: 'MIT' },
  { source: 'mooncake-conversation', origin: 'kvcache-ai/Mooncake, FAST25-release/traces/conversation_trace.jsonl', commit: '3b5a594', licence: 'Apache-2.0' },
  { source: 'tau-bench-airline', origin: 'sierra-research/tau-bench, historical_trajectories/gpt-4o-airline.json', commit: '59a200c', licence: 'MIT' },
  { source: 'tot-game24', origin: 'princeton-nlp/tree-of-thought-llm, logs/game24', commit: 'ab40034', licence: 'MIT' },
  { source: 'tot-text', origin: 'princeton-nlp/tree-of-thought-llm, logs/text', commit: 'ab40034', licence: 'MIT' },
  { source: 'tracelab-example', origin: 'uw-syfi/TraceLab, example_sessions/sanitized', commit: '0b8a262', licence: 'CC-BY-4.0' },
]

const ARRIVALS: readonly (Source & { readonly file: string })[] = ['code', 'conv'].map((name) => ({
  source: `azure2023-${name}`, origin: `Azure/AzurePublicDataset, AzureLLMInferenceTrace_${name}.csv`, commit: '2023', licence: 'CC-BY-4.0',
  file: `azure2023-${name}.public.json`,
}))

interface RawNode {
  readonly kind: 'llm' | 'tool' | 'human'
  readonly parents: readonly number[]
  readonly prompt_tokens: number
  readonly new_prompt_tokens: number
  readonly output_tokens: number
  readonly tool: string
  readonly latency_s: number | null
}
interface RawProgram { readonly id: string; readonly arrival_s: number | null; readonly shared_prefix_tokens?: number; readonly nodes: readonly RawNode[] }

function nodeOf({ kind, parents, ...of }: RawNode): readonly unknown[] {
  if (kind === 'llm') return ['call', parents, of.prompt_tokens, of.new_prompt_tokens, of.output_tokens]
  return [kind, parents, of.tool, of.latency_s]
}

const programOf = ({ id, arrival_s: arrivalS, shared_prefix_tokens: shared, nodes }: RawProgram, source: string): object => ({
  id: id.slice(source.length + 1),
  ...(arrivalS === null ? {} : { arrivalS }),
  ...(shared === undefined ? {} : { shared }),
  nodes: nodes.map(nodeOf),
})

function convert(from: string, to: string): void {
  mkdirSync(join(to, 'programs'), { recursive: true })
  mkdirSync(join(to, 'arrivals'), { recursive: true })
  for (const head of SOURCES) {
    const lines = readFileSync(join(from, `${head.source}.jsonl`), 'utf8').split('\n').filter((line) => line !== '')
    const programs = lines.map((line) => programOf(JSON.parse(line) as RawProgram, head.source))
    writeFileSync(join(to, 'programs', `${head.source}.jsonl`), [head, ...programs].map((line) => `${JSON.stringify(line)}\n`).join(''))
  }
  for (const { file, ...head } of ARRIVALS) {
    const { arrival_s: at } = JSON.parse(readFileSync(join(from, file), 'utf8')) as { arrival_s: readonly number[] }
    const gapsMs = at.slice(1).map((seconds, index) => Math.round((seconds - (at[index] ?? 0)) * 1_000))
    writeFileSync(join(to, 'arrivals', `${head.source}.json`), `${JSON.stringify({ ...head, gapsMs })}\n`)
  }
}

const [from] = process.argv.slice(2)
if (from === undefined) throw new Error('say where the records are: node dist/scripts/convert-traces.js FOLDER')
convert(from, join('data', 'traces'))
