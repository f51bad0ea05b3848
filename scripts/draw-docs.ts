/**
 * `node dist/scripts/draw-docs.js` draws the pictures of `docs/` again, from runs of the simulator: the same seeds, the same
 * pictures. Run from the project's root.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { pictures } from './pictures/pictures.ts'

const FOLDER = 'docs/pictures'

mkdirSync(FOLDER, { recursive: true })
for (const [name, svg] of Object.entries(await pictures())) {
  writeFileSync(`${FOLDER}/${name}`, svg)
  process.stdout.write(`${FOLDER}/${name}: ${Math.round(svg.length / 1_024)} KiB\n`)
}
