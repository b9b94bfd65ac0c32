/** Fresh identifiers from a source of random bytes. */

/** Fills an array with random bytes, as `crypto.getRandomValues` does. */
export type RandomBytes = (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>;

const fromCrypto: RandomBytes = (bytes) => globalThis.crypto.getRandomValues(bytes);

/** A session id: 128 random bits in hexadecimal. */
export function newSessionId(random: RandomBytes = fromCrypto): string {
  return hex(random(new Uint8Array(16)));
}

/**
 * An input id: a UUID of version 7, so that ids sort by the time they were made.
 *
 * @param now Milliseconds since 1970.
 */
export function newInputId(now: number = Date.now(), random: RandomBytes = fromCrypto): string {
  const bytes = random(new Uint8Array(16));
  for (let i = 0; i < 6; i++) bytes[i] = Math.floor(now / 2 ** (8 * (5 - i))) % 256;
  bytes[6] = 0x70 | ((bytes[6] ?? 0) & 0x0f);
  bytes[8] = 0x80 | ((bytes[8] ?? 0) & 0x3f);
  const digits = hex(bytes);
  return [0, 8, 12, 16, 20].map((from, i, cuts) => digits.slice(from, cuts[i + 1] ?? 32)).join("-");
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
