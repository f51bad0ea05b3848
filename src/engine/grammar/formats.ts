/**
 * Owns the formats of strings that a grammar can hold, without their quotes. Each accepts only what is of the format,
 * not all of it: a leap day has a year that is a multiple of 4 and not of 100, seconds end at 59, addresses and hosts
 * are plain ASCII.
 */
const YEAR = '[0-9]{4}'
const LEAP_YEAR = '[0-9]{2} ("0" [48] | [2468] [048] | [13579] [26])'
const MONTH_DAY = '("0" [13578] | "1" [02]) "-" ("0" [1-9] | [12] [0-9] | "3" [01])'
  + ' | ("0" [469] | "11") "-" ("0" [1-9] | [12] [0-9] | "30")'
  + ' | "02-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
const DATE = `${YEAR} "-" (${MONTH_DAY}) | ${LEAP_YEAR} "-02-29"`
const HOUR_MINUTE = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]'
const TIME = `${HOUR_MINUTE} ":" [0-5] [0-9] ("." [0-9]{1,9})? ("Z" | [-+] ${HOUR_MINUTE})`
const HEX = '[0-9a-f]'
const LABEL = '[a-z0-9] ([a-z0-9-]{0,30} [a-z0-9])?'
const HOST = `${LABEL} ("." ${LABEL}){1,4}`
const OCTET = '("25" [0-5] | "2" [0-4] [0-9] | "1" [0-9] [0-9] | [1-9] [0-9] | [0-9])'

export const FORMATS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `(${DATE}) "T" ${TIME}`],
  ['uuid', `${HEX}{8} "-" ${HEX}{4} "-" ${HEX}{4} "-" ${HEX}{4} "-" ${HEX}{12}`],
  ['ipv4', `${OCTET} "." ${OCTET} "." ${OCTET} "." ${OCTET}`],
  ['hostname', HOST],
  ['email', `[a-zA-Z0-9] ([a-zA-Z0-9_+-] | "." [a-zA-Z0-9_+-])* "@" ${HOST}`],
  ['uri', `[a-z] [a-z0-9+-]{0,15} "://" ${HOST} (":" [1-9] [0-9]{0,3})? ("/" [a-zA-Z0-9._~/?=&%+-]*)?`],
])
