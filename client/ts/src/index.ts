/** The client of the wire protocol `parley.v1`. */

export * from "./backoff.js";
export * from "./check.js";
export * from "./closing.js";
export * from "./connection.js";
export * from "./effects.js";
export * from "./fold.js";
export * from "./frames.js";
export * from "./ids.js";
export * from "./machine.js";
export { OUTBOX_LIMIT } from "./outbox.js";
export * from "./words.js";
