/**
 * Owns the log of the process: one JSON line an event, to standard error, so that standard output stays a command's
 * own. Never a prompt, an answer or a key.
 */
import { destination, pino, type Logger } from 'pino'

const STDERR = 2

const SECRET = ['authorization', 'headers.authorization', 'key']

export const makeLog = (level: string): Logger =>
  pino({ name: 'entracte', level, redact: SECRET }, destination({ fd: STDERR, sync: false }))
