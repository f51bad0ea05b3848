import assert from 'node:assert/strict'
import { test } from 'node:test'
import { tinyModel } from '../real-model.ts'
import { TINY } from './exact-plot.ts'
import { allEqual } from './exact-script.ts'

const SCRIPTS = 200

test(`every token is that of the undisturbed run alone: ${SCRIPTS} scripts on the tiny model`, async (context) => {
  const disturbed = await allEqual(1, SCRIPTS, { modelPath: await tinyModel(), scale: TINY, laneTokens: 2_048, threads: 1 })
  context.diagnostic(JSON.stringify(disturbed))
  const all = ['pause', 'pause and offload', 'pause and discard', 'cancel', 'cancel and forget', 'kill', 'onboard', 'rebuilt at the end']
  for (const kind of all) assert.ok((disturbed[kind] ?? 0) > 20, `${kind} happened ${disturbed[kind]} times`)
})
