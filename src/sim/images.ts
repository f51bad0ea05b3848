/**
 * Owns the files of KV images on the host tier, and what goes wrong with them: no space to write, bytes that rot, files
 * that are gone. A reader checks the digest and whose image it is before it takes any of it.
 */
import type { ImageIdentity } from '../driver/ports.ts'
import type { Bytes } from '../core/units.ts'
import type { Kv } from './device.ts'
import type { Faults } from './faults.ts'

interface Image {
  readonly key: string
  readonly identity: ImageIdentity
  readonly kv: Kv
  readonly bytes: Bytes
}

/** By path. */
export type Images = Map<string, Image>

interface ImageWorld { readonly images: Images; readonly faults: Faults }

/** What a move says of it, or why it could not be written. */
export function writeImage({ images, faults }: ImageWorld, path: string, image: Image): { bytes: Bytes; digest: string } | string {
  if (faults.at('image.noSpace', 'host') !== null) return 'no space is left on the host tier'
  images.set(path, image)
  return { bytes: image.bytes, digest: image.kv.checksum() }
}

/** The image, or why it must never be tried again. */
export function readImage({ images, faults }: ImageWorld, path: string, want: { key: string; identity: ImageIdentity; digest: string }): Image | string {
  const image = images.get(path)
  if (image === undefined || faults.at('image.lost', 'host') !== null) {
    images.delete(path)
    return `${path} is not there`
  }
  const rot = faults.at('image.corrupt', 'host')
  if (rot !== null && image.kv.tokens > 0) image.kv.spoil(rot.below(image.kv.tokens))
  if (image.kv.checksum() !== want.digest) return `${path} does not have its digest`
  const { tenant, state, owner } = image.identity
  if (image.key !== want.key || tenant !== want.identity.tenant || state !== want.identity.state || owner !== want.identity.owner) {
    return `${path} is the image of another State`
  }
  return image
}
