/** Inputs that a client owes its server: kept until each is durable or refused for good (K7). */

import type { Input } from "./frames.js";

/** Inputs that are kept at most. One more pushes the oldest out, and its owner is told. */
export const OUTBOX_LIMIT = 32;

interface Entry {
  input: Input;
  /** Sent on the present connection and not yet answered. */
  sent: boolean;
  /** How often the server asked to come again later. */
  deferrals: number;
}

/**
 * A bounded queue of inputs in the order in which they were made. Resending is safe, because the input id is the
 * idempotency key. Owned by one machine.
 */
export class Outbox {
  #entries: Entry[];
  /** Nothing is sent before this instant, in milliseconds; it keeps later inputs behind a deferred one. */
  #heldUntil = 0;

  /** @param inputs What an earlier life of the client left, oldest first. */
  constructor(inputs: readonly Input[]) {
    this.#entries = inputs.slice(-OUTBOX_LIMIT).map((input) => ({ input, sent: false, deferrals: 0 }));
  }

  /** The inputs that are kept, oldest first. */
  inputs(): Input[] {
    return this.#entries.map((entry) => entry.input);
  }

  /** Adds an input. Answers the oldest, which is given up, when there were already {@link OUTBOX_LIMIT}. */
  add(input: Input): Input | undefined {
    this.#entries.push({ input, sent: false, deferrals: 0 });
    return this.#entries.length > OUTBOX_LIMIT ? this.#entries.shift()?.input : undefined;
  }

  /** Whether an input with this id is kept. */
  has(id: string): boolean {
    return this.#entries.some((entry) => entry.input.id === id);
  }

  /** Removes an input that was accepted or refused for good. Answers whether it was there. */
  remove(id: string): boolean {
    const at = this.#entries.findIndex((entry) => entry.input.id === id);
    if (at < 0) return false;
    this.#entries.splice(at, 1);
    return true;
  }

  /**
   * Marks an input as to be sent again, not before `retryMs` from `now`; a server that keeps deferring the same
   * input is asked less and less often, at most every 20 seconds beyond its own wish.
   */
  defer(id: string, now: number, retryMs: number): void {
    const entry = this.#entries.find((entry) => entry.input.id === id);
    if (entry === undefined) return;
    entry.sent = false;
    const patience = Math.min(20_000, 300 * 2 ** Math.min(entry.deferrals, 16));
    entry.deferrals++;
    this.#heldUntil = Math.max(this.#heldUntil, now + Math.max(retryMs, patience));
  }

  /** Forgets what was sent: the next connection sends all of it again. */
  disconnected(): void {
    for (const entry of this.#entries) entry.sent = false;
    this.#heldUntil = 0;
  }

  /** Takes the inputs to send now, in order, and marks them as sent. */
  take(now: number): Input[] {
    if (now < this.#heldUntil) return [];
    const due = this.#entries.filter((entry) => !entry.sent);
    for (const entry of due) entry.sent = true;
    return due.map((entry) => entry.input);
  }
}
