/** Owns how rows of spans look as SVG: one line a row, time to the right, a legend of what was seen. */
import type { Doing, Span } from './spans.ts'

const COLOURS: Readonly<Record<Doing, string>> = {
  queued: '#d9a441', running: '#2f6fb3', waiting: '#d5d9de', device: '#2f6fb3', host: '#7ab8a0',
}
const LEFT = 40
const WIDTH = 860
const ROW = 16

/** A mark above the rows: something that went wrong there. */
interface Mark { readonly atUs: number; readonly text: string }

interface Chart {
  readonly title: string
  readonly spans: readonly Span[]
  readonly rows: readonly string[]
  readonly endUs: number
  readonly marks?: readonly Mark[]
}

/** Charts under each other on one scale of time. */
export function gantt(charts: readonly Chart[]): string {
  const endUs = Math.max(...charts.map((chart) => chart.endUs))
  const parts: string[] = []
  let top = 8
  for (const chart of charts) {
    parts.push(...drawn(chart, top, endUs))
    top += heightOf(chart)
  }
  const seen = new Set(charts.flatMap(({ spans }) => spans.map(({ doing }) => doing)))
  parts.push(...legend([...seen], top))
  const height = top + 24
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" font-family="sans-serif" font-size="11">\n`
    + `<rect width="${WIDTH}" height="${height}" fill="white"/>\n${parts.join('\n')}\n</svg>\n`
}

const heightOf = (chart: Chart): number => 44 + chart.rows.length * ROW + (chart.marks === undefined ? 0 : 14)

function drawn(chart: Chart, top: number, endUs: number): string[] {
  const x = (us: number): number => Math.round(10 * (LEFT + ((WIDTH - LEFT - 12) * us) / endUs)) / 10
  const rowsTop = top + 24 + (chart.marks === undefined ? 0 : 14)
  const bottom = rowsTop + chart.rows.length * ROW
  const parts = [text(8, top + 12, chart.title, 'font-weight="bold" font-size="12"')]
  for (const second of ticks(endUs)) {
    parts.push(`<line x1="${x(second * 1e6)}" x2="${x(second * 1e6)}" y1="${rowsTop}" y2="${bottom}" stroke="#eceff2"/>`)
    parts.push(text(x(second * 1e6), bottom + 12, `${second} s`, 'fill="#666" text-anchor="middle"'))
  }
  chart.rows.forEach((row, at) => parts.push(text(LEFT - 6, rowsTop + at * ROW + 12, row, 'text-anchor="end" fill="#333"')))
  for (const { row, doing, fromUs, toUs } of chart.spans) {
    const at = chart.rows.indexOf(row)
    if (at < 0) continue
    const width = Math.max(0.5, Math.round(10 * (x(toUs) - x(fromUs))) / 10)
    parts.push(`<rect x="${x(fromUs)}" y="${rowsTop + at * ROW + 3}" width="${width}" height="${ROW - 5}" fill="${COLOURS[doing]}"/>`)
  }
  for (const { atUs, text: said } of chart.marks ?? []) {
    parts.push(`<path d="M${x(atUs)} ${rowsTop} l-3.5 -7 h7 z" fill="#b5452c"><title>${escaped(said)}</title></path>`)
  }
  return parts
}

function ticks(endUs: number): number[] {
  const wanted = endUs / 1e6 / 8
  const step = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600].find((seconds) => seconds >= wanted) ?? 1_200
  return Array.from({ length: Math.floor(endUs / 1e6 / step) + 1 }, (_, at) => at * step)
}

function legend(seen: readonly Doing[], top: number): string[] {
  return seen.flatMap((doing, at) => [
    `<rect x="${LEFT + at * 110}" y="${top}" width="10" height="10" fill="${COLOURS[doing]}"/>`,
    text(LEFT + 14 + at * 110, top + 9, doing, 'fill="#333"'),
  ])
}

const text = (x: number, y: number, said: string, how: string): string => `<text x="${x}" y="${y}" ${how}>${escaped(said)}</text>`

const escaped = (said: string): string => said.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
