import { test } from 'node:test'
import { realModel } from '../real-model.ts'
import { REAL } from './exact-plot.ts'
import { allEqual } from './exact-script.ts'

const SCRIPTS = 15

test(`every token is that of the undisturbed run alone: ${SCRIPTS} scripts on the real model`, async (context) => {
  const modelPath = await realModel()
  const disturbed = await allEqual(1, SCRIPTS, { modelPath, scale: REAL, laneTokens: 2_048, threads: 1 })
  context.diagnostic(JSON.stringify(disturbed))
})
