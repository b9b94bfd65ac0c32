/** What a closed connection means for a client: go on, go on with a fresh token at once, or stop (K5). */

import { closeCodes } from "./words.js";

/**
 * What to do after a close: `retry` waits for the next try of the backoff; `fresh` tries at once, since only the token
 * was too old; `stop` means that the same thing would happen again, so a person or program has to change something.
 */
export type CloseAction = "retry" | "fresh" | "stop";

const known: ReadonlyMap<number, CloseAction> = new Map([
  [closeCodes.normal, "retry"],
  [closeCodes.protocol_error, "stop"],
  [closeCodes.unsupported_data, "stop"],
  [closeCodes.invalid_utf8, "stop"],
  [closeCodes.frame_too_large, "stop"],
  [closeCodes.internal, "retry"],
  [closeCodes.restarting, "retry"],
  [closeCodes.overloaded, "retry"],
  [closeCodes.gap, "retry"],
  [closeCodes.bad_request, "stop"],
  [closeCodes.unauthenticated, "stop"],
  [closeCodes.forbidden, "stop"],
  [closeCodes.room_not_found, "stop"],
  [closeCodes.version_unsupported, "stop"],
  [closeCodes.hello_timeout, "retry"],
  [closeCodes.replaced, "stop"],
  [closeCodes.room_closed, "stop"],
  [closeCodes.token_expired, "fresh"],
  [closeCodes.slow_consumer, "retry"],
  [closeCodes.moved, "retry"],
  [closeCodes.rate_limited, "retry"],
]);

/**
 * The action for a close code. Codes from 4400 to 4499 that this version does not know stop; all others, those that
 * a browser makes up when the network fails (1001, 1005, 1006) included, are retried.
 */
export function closeAction(code: number): CloseAction {
  return known.get(code) ?? (code >= 4400 && code <= 4499 ? "stop" : "retry");
}

/** The codes of the table, for tests that compare it with the words of the protocol. */
export function knownCloseCodes(): number[] {
  return [...known.keys()];
}
