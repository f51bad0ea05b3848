/**
 * Owns what a mutant is, and its place in a copy of the build: a text of one built file that is replaced by another. The
 * text must be there exactly once; otherwise the mutant does not apply, and that is a failure of the list.
 */
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { buildFolder } from '../checkout.ts'

export interface Mutant {
  readonly name: string
  /** The law it breaks, by its number; 0: a promise without a number. */
  readonly law: number
  /** Below the build's `src/`, without its ending. */
  readonly file: string
  readonly find: string
  readonly put: string
}

/** A copy of the build inside it, so that third-party packages are found from there too. */
export class Slot {
  readonly folder: string

  constructor(index: number) {
    this.folder = join(buildFolder, '.mutants', `${process.pid}-${index}`)
    rmSync(this.folder, { recursive: true, force: true })
    mkdirSync(this.folder, { recursive: true })
    for (const part of ['src', 'test', 'scripts']) cpSync(join(buildFolder, part), join(this.folder, part), { recursive: true })
  }

  /** Returns what takes the mutant out again, or says why it does not apply. */
  put({ file, find, put }: Mutant): (() => void) | string {
    const path = join(this.folder, 'src', `${file}.js`)
    const text = readFileSync(path, 'utf8')
    const found = text.split(find).length - 1
    if (found !== 1) return `${file} has the text ${found} times`
    writeFileSync(path, text.replace(find, () => put))
    return () => writeFileSync(path, text)
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true })
  }
}
