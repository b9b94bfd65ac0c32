/** What goes into the connection's state machine and what comes out of it. */

import type { AcceptedFrame, Input, Item, OtherFrame, Rights, StateFrame } from "./frames.js";

/**
 * Where the machine stands: `idle` before `start`; `authorizing` waits for a token; `connecting` for the socket;
 * `greeting` for `ready`; `replaying` reads what it missed; `live` is caught up; `waiting` for the next try;
 * `stopped` until `start`.
 */
export type Phase = "idle" | "authorizing" | "connecting" | "greeting" | "replaying" | "live" | "waiting" | "stopped";

/** Why the machine stopped or waits. */
export interface Cause {
  /** A close code, or 0 when no connection was closed: no token, or stopped by the product. */
  code: number;
  /** `closed`, `refused` (the token source refused), `budget` (too many tries without progress) or `asked`. */
  kind: "closed" | "refused" | "budget" | "asked";
  reason: string;
}

/** What the machine says of itself whenever it changes. */
export interface Status {
  phase: Phase;
  /** Set while `waiting` or `stopped`. */
  cause?: Cause;
  /** When the next try begins, in milliseconds of the shell's clock; set while `waiting`. */
  retryAt?: number;
  /** The authenticated subject, once known. */
  sub?: string;
  /** Rights by channel, once known. */
  can?: Rights;
}

/** What happened outside. `now` is milliseconds of a clock that never goes back. */
export type MachineEvent = { now: number } & (
  | { type: "start" }
  | { type: "stop" }
  /** The token source answered. */
  | { type: "token"; token: string }
  /** The token source failed; `final` when trying again is useless. */
  | { type: "token_failed"; reason: string; final: boolean }
  | { type: "opened"; socket: number }
  | { type: "frame"; socket: number; text: string }
  | { type: "closed"; socket: number; code: number; reason: string }
  /** A moment of the shell's clock; at least one each second while connected. */
  | { type: "tick" }
  /** The time of `retryAt` has come, or there is a reason to try earlier (network is back, page is shown). */
  | { type: "retry" }
  /** The page is hidden, so ticks may be rare: acknowledge at once. */
  | { type: "hidden"; hidden: boolean }
  /** The product's handler returned for this delivery. */
  | { type: "handled"; socket: number; n: number }
  /** The product's handler threw for this delivery. */
  | { type: "handler_failed"; socket: number; n: number; error: unknown }
  | { type: "submit"; input: Input }
  /** A request that carries a `ref`: cancel, focus, interrupt, subscribe. */
  | { type: "request"; ref: string; frame: Record<string, unknown> }
);

/** What the shell must do. */
export type Effect =
  | { type: "fetch_token"; purpose: "connect" | "refresh" }
  /** Open a socket; its events carry this number. */
  | { type: "open"; socket: number }
  | { type: "send"; socket: number; text: string }
  /** Close the socket and report nothing more of it. */
  | { type: "close"; socket: number; code: number; reason: string }
  /** Come back with `retry` after this many milliseconds. */
  | { type: "retry_in"; ms: number }
  /**
   * Hand one item to the product, then report `handled` or `handler_failed` with the same socket and number, before
   * the next effect. A delivery that the machine no longer owes (see `owes`) is void.
   */
  | { type: "deliver"; socket: number; n: number; item: Item }
  /** A stream that was not resumed begins with this state: whatever was folded before is void. Report as above. */
  | { type: "reset"; socket: number; n: 0; state: StateFrame; reason: string }
  /** Everything up to this cursor was handled. */
  | { type: "cursor"; cursor: string }
  | { type: "outbox"; inputs: Input[] }
  | { type: "accepted"; frame: AcceptedFrame }
  /** The server asked to come again later; the input stays in the outbox and is sent again by itself. */
  | { type: "deferred"; id: string; code: string; message: string }
  /** An input will not be sent again. The code is the server's or `outbox_full`. */
  | { type: "refused"; id: string; code: string; message: string }
  | { type: "done"; ref: string; frame: Record<string, unknown> }
  /** A request failed. The code is the server's, or `disconnected`: whether it was carried out is unknown. */
  | { type: "request_failed"; ref: string; code: string; message: string }
  | { type: "status"; status: Status }
  /** A fault that a person may need to know of; the machine has dealt with it. */
  | { type: "fault"; error: Error }
  | { type: "other"; frame: OtherFrame };

/** What a product sets. */
export interface MachineOptions {
  /** Channels of the room to read. */
  channels: string[];
  /** 128 random bits, the same for the life of a tab or device session. */
  session: string;
  /** Where a stream without a valid cursor begins; `tail` unless given. */
  from?: "tail" | "start";
  /** What this client renders; none unless given. */
  render?: string[];
  /** Name and version for the server's metrics. */
  client?: string;
  /** Bytes of the largest frame to receive; 32,768 unless given. */
  maxFrame?: number;
  /** The cursor up to which everything was handled in an earlier life. */
  cursor?: string | null;
  /** What an earlier life left in the outbox. */
  outbox?: readonly Input[];
  /** Source of numbers in [0, 1). */
  random: () => number;
  /** Tries without progress before stopping; 30 unless given. */
  budget?: number;
  /** Checks an item's product payload and answers what the product sees (K2); throwing keeps the cursor. */
  validate?: (item: Item) => Item;
}
