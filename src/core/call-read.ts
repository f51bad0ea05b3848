/** Owns the questions asked of calls. Reads only. */
import type { Call, CallStage } from './state.ts'

export const isOverStage = ({ kind }: CallStage): boolean => kind === 'committed' || kind === 'cancelled' || kind === 'failed'

/** Committed, or ended without: nothing of it is still to come. */
export const isOver = (call: Readonly<Call>): boolean => isOverStage(call.stage)
