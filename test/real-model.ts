/**
 * The real model, for the few tests that need one. Where no way to it works the test fails and says so, unless
 * ENTRACTE_OFFLINE=1: then it runs on the tiny model and prints that it did.
 */
import { resolveModel } from '../src/models/resolve.ts'

let resolved: Promise<string> | null = null

export function realModel(): Promise<string> {
  resolved ??= find()
  return resolved
}

async function find(): Promise<string> {
  try {
    return (await resolveModel({ model: 'default', env: process.env })).path
  } catch (thrown) {
    if (process.env['ENTRACTE_OFFLINE'] !== '1') throw thrown
    console.log('ENTRACTE_OFFLINE=1 and no real model in the cache: this test runs on the tiny model')
    return tinyModel()
  }
}

/** The tiny model's file, for the many tests that need any transformer. */
export async function tinyModel(): Promise<string> {
  return (await resolveModel({ model: 'tiny', env: process.env })).path
}
