/** Makes zip files for the tests, damaged ones too. */
import { crc32, deflateRawSync } from 'node:zlib'

export interface ZipEntry {
  readonly name: string
  readonly content: Buffer
  readonly method?: 'stored' | 'deflated'
  /** What the directory says instead of the truth. */
  readonly bytes?: number
  readonly methodNumber?: number
  readonly flags?: number
}

export function zipOf(entries: readonly ZipEntry[], comment = ''): Buffer {
  const files: Buffer[] = []
  const directory: Buffer[] = []
  let offset = 0
  for (const entry of entries) {
    const packed = entry.method === 'deflated' ? deflateRawSync(entry.content) : entry.content
    const name = Buffer.from(entry.name)
    const fields = Buffer.alloc(26)
    fields.writeUInt16LE(20, 0)
    fields.writeUInt16LE(entry.flags ?? 0, 2)
    fields.writeUInt16LE(entry.methodNumber ?? (entry.method === 'deflated' ? 8 : 0), 4)
    fields.writeUInt32LE(crc32(entry.content), 10)
    fields.writeUInt32LE(packed.length, 14)
    fields.writeUInt32LE(entry.bytes ?? entry.content.length, 18)
    fields.writeUInt16LE(name.length, 22)
    // The local header has four bytes of extra field that the directory has not, as real archives do.
    const local = Buffer.concat([u32(0x04034b50), fields, name, Buffer.alloc(4), packed])
    local.writeUInt16LE(4, 28)
    const rest = Buffer.alloc(14)
    rest.writeUInt32LE(offset, 10)
    directory.push(Buffer.concat([u32(0x02014b50), Buffer.alloc(2), fields, rest, name]))
    files.push(local)
    offset += local.length
  }
  const list = Buffer.concat(directory)
  const end = Buffer.alloc(18)
  end.writeUInt16LE(entries.length, 4)
  end.writeUInt16LE(entries.length, 6)
  end.writeUInt32LE(list.length, 8)
  end.writeUInt32LE(offset, 12)
  end.writeUInt16LE(comment.length, 16)
  return Buffer.concat([...files, list, u32(0x06054b50), end, Buffer.from(comment)])
}

function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4)
  bytes.writeUInt32LE(value)
  return bytes
}
