/** Owns how a shared library is opened: on which stacks its functions run. Each thread of ours opens for itself. */
import koffi from 'koffi'
import type { LibraryHandle } from 'koffi'

/** The native side computes on koffi's own stacks; what a graph needs is far below this. */
const STACK_BYTES = 8 * 1024 * 1024

/** The stacks can be set until something is opened. */
let configured = false

/** Throws what the system's loader says. */
export function openNative(path: string): LibraryHandle {
  if (!configured) koffi.config({ sync_stack_size: STACK_BYTES, async_stack_size: STACK_BYTES })
  configured = true
  return koffi.load(path)
}
