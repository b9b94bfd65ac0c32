/**
 * The connection's state machine (K1). It knows no socket, timer or storage: a shell feeds it {@link MachineEvent}s
 * and carries out the {@link Effect}s that come back, in order. All its time is the `now` of the events.
 *
 * It guarantees: the cursor moves only past items whose handling was reported (K3); an item is delivered at most once
 * per life of the machine; a gap in the numbers is never skipped; nothing of a run is delivered after its terminal
 * (K4); an input is kept until it is durable or refused for good (K7).
 */

import { Backoff, DEFAULT_BUDGET } from "./backoff.js";
import { FrameError, isTerminalEvent, joinState, parseServerFrame } from "./check.js";
import { closeAction } from "./closing.js";
import type { Cause, Effect, MachineEvent, MachineOptions, Phase, Status } from "./effects.js";
import type {
  DoneFrame,
  ErrorFrame,
  EventsFrame,
  Input,
  Item,
  ReadyFrame,
  Rights,
  ServerFrame,
  StateFrame,
} from "./frames.js";
import { Outbox } from "./outbox.js";
import { RecentSet } from "./recent.js";
import { closeCodes } from "./words.js";

/** A number was missing: the server is at fault, the client resumes (K3). */
export class GapError extends Error {
  constructor(expected: number, got: number) {
    super(`events: expected item ${expected}, got ${got}`);
    this.name = "GapError";
  }
}

/** An item of a run came after the run's terminal; it changed nothing (K4). */
export class AfterTerminalError extends Error {
  constructor(run: string) {
    super(`an event of run ${run} came after its end`);
    this.name = "AfterTerminalError";
  }
}

/** Milliseconds for a socket to open and for `ready` to arrive. */
const GREETING_MS = 15_000;
/** Milliseconds beyond the ping interval after which silence means death. */
const SILENCE_GRACE_MS = 10_000;
const ACK_MS = 1_000;
const ACK_ITEMS = 64;
/** Wait for a refusal that may pass but does not say when. */
const DEFAULT_RETRY_MS = 1_000;

/** The machine itself. Owned by one shell; nothing in it waits. */
export class Machine {
  readonly #options: MachineOptions;
  readonly #backoff: Backoff;
  readonly #outbox: Outbox;
  readonly #known = new RecentSet(4096);
  readonly #ended = new RecentSet(4096);
  readonly #requests = new Set<string>();
  #effects: Effect[] = [];

  #phase: Phase = "idle";
  #cause: Cause | undefined;
  #retryAt: number | undefined;
  #cursor: string | null;
  #socket = 0;
  #token = "";
  #sub: string | undefined;
  #can: Rights | undefined;
  #pingMs = 25_000;
  #heardAt = 0;
  #hidden = false;

  /** Parts of the `state` that is still incomplete; undefined when none is expected. */
  #parts: StateFrame[] | undefined;
  #resetReason = "";
  #readyCursor = "";
  /** Number of the last item received, of the last handled, of the last acknowledged. */
  #received = 0;
  #handled = 0;
  #acked = 0;
  #ackedAt = 0;
  /** Cursors that hold once the item with that number was handled. Invariant: `n` rises. */
  #marks: { n: number; cursor: string }[] = [];
  /** Items given out and not yet handled, by number. */
  #out = new Map<number, Item>();
  /** When the token should be refreshed; undefined while a refresh is under way or no connection is up. */
  #refreshAt: number | undefined;
  #refreshRef = 0;

  constructor(options: MachineOptions) {
    this.#options = options;
    this.#backoff = new Backoff(options.budget ?? DEFAULT_BUDGET, options.random);
    this.#outbox = new Outbox(options.outbox ?? []);
    this.#cursor = options.cursor ?? null;
  }

  /** The cursor up to which everything was handled, or null before the first. */
  get cursor(): string | null {
    return this.#cursor;
  }

  /** The inputs that are not yet durable, oldest first. */
  get outbox(): Input[] {
    return this.#outbox.inputs();
  }

  /** The present status. */
  get status(): Status {
    const status: Status = { phase: this.#phase };
    if (this.#cause !== undefined) status.cause = this.#cause;
    if (this.#retryAt !== undefined) status.retryAt = this.#retryAt;
    if (this.#sub !== undefined) status.sub = this.#sub;
    if (this.#can !== undefined) status.can = this.#can;
    return status;
  }

  /** Whether a delivery still stands: its connection is up and it was neither handled nor taken back. */
  owes(socket: number, n: number): boolean {
    return socket === this.#socket && this.#ready() && (n === 0 ? this.#handled < 0 : this.#out.has(n));
  }

  /** Takes one event and answers the effects, to be carried out in order. */
  handle(event: MachineEvent): Effect[] {
    this.#effects = [];
    this.#step(event);
    return this.#effects;
  }

  #step(event: MachineEvent): void {
    const now = event.now;
    switch (event.type) {
      case "start":
        if (this.#phase !== "idle" && this.#phase !== "stopped") return;
        this.#backoff.progress();
        return this.#authorize();
      case "stop":
        if (this.#connected()) this.#emit({ type: "close", socket: this.#socket, code: closeCodes.normal, reason: "" });
        this.#lost();
        return this.#rest({ code: 0, kind: "asked", reason: "" });
      case "token":
        if (this.#phase === "authorizing") {
          this.#token = event.token;
          this.#socket++;
          this.#heardAt = now;
          this.#enter("connecting");
          this.#emit({ type: "open", socket: this.#socket });
        } else if (this.#ready()) {
          this.#refreshRef++;
          this.#send({ type: "auth", ref: this.#authRef(), token: event.token });
        }
        return;
      case "token_failed":
        if (this.#phase === "authorizing") {
          if (event.final) return this.#rest({ code: 0, kind: "refused", reason: event.reason });
          return this.#wait(now, { code: 0, kind: "closed", reason: event.reason });
        }
        // The token in use is still good for a while; when it is not, the server closes with token_expired.
        if (this.#ready()) this.#refreshAt = now + 10_000;
        return;
      case "opened":
        if (event.socket !== this.#socket || this.#phase !== "connecting") return;
        this.#heardAt = now;
        this.#enter("greeting");
        return this.#send(this.#hello());
      case "frame":
        if (event.socket !== this.#socket || !this.#connected()) return;
        this.#heardAt = now;
        return this.#frame(event.text, now);
      case "closed":
        if (event.socket !== this.#socket || !this.#connected()) return;
        return this.#closed(now, event.code, event.reason);
      case "tick":
        return this.#tick(now);
      case "retry":
        if (this.#phase === "waiting") this.#authorize();
        return;
      case "hidden":
        this.#hidden = event.hidden;
        return this.#maybeAck(now);
      case "handled":
        if (!this.owes(event.socket, event.n)) return;
        this.#out.delete(event.n);
        if (event.n > 0) this.#backoff.progress();
        return this.#advance(now);
      case "handler_failed":
        if (!this.owes(event.socket, event.n)) return;
        return this.#fail(now, asError(event.error), event.n === 0 ? "state not handled" : "item not handled");
      case "submit":
        return this.#submit(event.input, now);
      case "request":
        if (!this.#ready()) {
          return this.#emit({ type: "request_failed", ref: event.ref, code: "disconnected", message: "not connected" });
        }
        this.#requests.add(event.ref);
        return this.#send({ ...event.frame, ref: event.ref });
    }
  }

  #frame(text: string, now: number): void {
    let frame: ServerFrame;
    try {
      frame = parseServerFrame(text);
    } catch (error) {
      return this.#fail(now, error instanceof Error ? error : new FrameError("", "unreadable"), "malformed frame");
    }
    if (!this.#ready() && frame.type !== "ready" && frame.type !== "error" && frame.type !== "goaway") {
      return this.#fail(now, new FrameError("type", "expected ready first"), "frame before ready");
    }
    switch (frame.type) {
      case "ready":
        if (this.#ready()) return this.#fail(now, new FrameError("type", "a second ready"), "second ready");
        return this.#onReady(frame, now);
      case "state":
        return this.#onState(frame, now);
      case "events":
        return this.#onEvents(frame, now);
      case "caught_up":
        if (this.#parts !== undefined) return this.#fail(now, new FrameError("type", "state missing"), "no state");
        this.#mark(frame.cursor);
        if (this.#phase === "replaying") this.#enter("live");
        return;
      case "accepted":
        this.#backoff.progress();
        this.#emit({ type: "accepted", frame });
        if (this.#outbox.remove(frame.id)) this.#emitOutbox();
        return;
      case "done":
        return this.#onDone(frame, now);
      case "subscribed":
        this.#can = frame.can;
        if (this.#requests.delete(frame.ref)) {
          this.#emit({ type: "done", ref: frame.ref, frame: { ...frame } });
        }
        return this.#emit({ type: "status", status: this.status });
      case "error":
        return this.#onError(frame, now);
      case "ping":
        this.#backoff.progress();
        this.#send({ type: "pong", t: frame.t });
        if (frame.cursor !== undefined && this.#parts === undefined) this.#mark(frame.cursor);
        return this.#maybeAck(now);
      case "goaway":
        return; // The close that follows carries the code; there is nothing to do before it.
      case "other":
        return this.#emit({ type: "other", frame });
    }
  }

  #onReady(frame: ReadyFrame, now: number): void {
    this.#sub = frame.sub;
    this.#can = frame.can;
    this.#pingMs = frame.pingMs;
    this.#received = this.#handled = this.#acked = 0;
    this.#ackedAt = now;
    this.#marks = [];
    this.#out.clear();
    this.#refreshAt = now + refreshAfterMs(frame.expiresIn);
    if (frame.resumed) {
      this.#parts = undefined;
    } else {
      this.#parts = [];
      this.#handled = -1;
      this.#resetReason = frame.reason ?? "";
      this.#readyCursor = frame.cursor;
    }
    this.#enter("replaying");
    this.#flushOutbox(now);
  }

  #onState(frame: StateFrame, now: number): void {
    if (this.#parts === undefined || frame.part !== this.#parts.length + 1) {
      return this.#fail(now, new FrameError("part", "unexpected part of a state"), "unexpected state");
    }
    this.#parts.push(frame);
    if (frame.part < frame.parts) return;
    const whole = joinState(this.#parts);
    this.#parts = undefined;
    this.#known.clear();
    this.#ended.clear();
    this.#marks = [{ n: 0, cursor: this.#readyCursor }];
    this.#emit({ type: "reset", socket: this.#socket, n: 0, state: whole, reason: this.#resetReason });
  }

  #onEvents(frame: EventsFrame, now: number): void {
    if (this.#parts !== undefined) return this.#fail(now, new FrameError("type", "events before state"), "no state");
    if (frame.n !== this.#received + 1) {
      return this.#fail(now, new GapError(this.#received + 1, frame.n), "gap in the numbers");
    }
    // All payloads are checked before the first is delivered, so that a bad frame has no half effect.
    let items: Item[];
    try {
      const validate = this.#options.validate;
      items = validate === undefined ? frame.items : frame.items.map((item) => validate(item));
    } catch (error) {
      return this.#fail(now, asError(error), "invalid payload");
    }
    for (const item of items) {
      const n = ++this.#received;
      if (this.#known.has(item.id)) continue;
      this.#known.add(item.id);
      if (item.kind === "run.event" && item.run !== undefined) {
        if (this.#ended.has(item.run)) {
          this.#emit({ type: "fault", error: new AfterTerminalError(item.run) });
          continue;
        }
        if (isTerminalEvent(item.body["type"])) this.#ended.add(item.run);
      }
      this.#out.set(n, item);
      this.#emit({ type: "deliver", socket: this.#socket, n, item });
    }
    this.#marks.push({ n: this.#received, cursor: frame.cursor });
    // What is known already needs no handler and may complete the frame by itself.
    this.#advance(now);
  }

  /** Moves on after a number was settled; one that needs no handler may be settled before an earlier delivery. */
  #advance(now: number): void {
    const oldest = this.#out.keys().next();
    this.#handled = oldest.done === true ? this.#received : oldest.value - 1;
    this.#settleMarks();
    this.#maybeAck(now);
  }

  #mark(cursor: string): void {
    this.#marks.push({ n: this.#received, cursor });
    this.#settleMarks();
  }

  #settleMarks(): void {
    let cursor: string | undefined;
    while (this.#marks[0] !== undefined && this.#marks[0].n <= this.#handled) cursor = this.#marks.shift()?.cursor;
    if (cursor === undefined || cursor === this.#cursor) return;
    this.#cursor = cursor;
    this.#emit({ type: "cursor", cursor });
  }

  #maybeAck(now: number): void {
    const owed = this.#handled - this.#acked;
    if (owed <= 0 || !this.#ready()) return;
    if (owed < ACK_ITEMS && now - this.#ackedAt < ACK_MS && !this.#hidden) return;
    this.#acked = this.#handled;
    this.#ackedAt = now;
    this.#send({ type: "ack", n: this.#acked });
  }

  #submit(input: Input, now: number): void {
    if (this.#outbox.has(input.id)) return;
    const given = this.#outbox.add(input);
    if (given !== undefined) {
      this.#emit({ type: "refused", id: given.id, code: "outbox_full", message: "too many inputs are waiting" });
    }
    this.#emitOutbox();
    this.#flushOutbox(now);
  }

  #flushOutbox(now: number): void {
    if (!this.#ready()) return;
    for (const input of this.#outbox.take(now)) this.#send({ type: "input", ...input });
  }

  #onDone(frame: DoneFrame, now: number): void {
    if (frame.ref === this.#authRef()) {
      const expiresIn = frame["expiresIn"];
      this.#refreshAt = typeof expiresIn === "number" ? now + refreshAfterMs(expiresIn) : undefined;
      if (typeof frame["can"] === "object" && frame["can"] !== null) this.#can = frame["can"] as Rights;
      return this.#emit({ type: "status", status: this.status });
    }
    if (this.#requests.delete(frame.ref)) this.#emit({ type: "done", ref: frame.ref, frame });
  }

  #onError(frame: ErrorFrame, now: number): void {
    const { ref, code, message } = frame;
    if (ref !== undefined && this.#outbox.has(ref)) {
      if (code === "rate_limited" || code === "unavailable") {
        this.#outbox.defer(ref, now, frame.retryMs ?? DEFAULT_RETRY_MS);
        return this.#emit({ type: "deferred", id: ref, code, message });
      }
      this.#outbox.remove(ref);
      this.#emit({ type: "refused", id: ref, code, message });
      return this.#emitOutbox();
    }
    if (ref !== undefined && this.#requests.delete(ref)) {
      return this.#emit({ type: "request_failed", ref, code, message });
    }
    if (ref === this.#authRef()) {
      this.#refreshAt = now + 10_000;
      return;
    }
    this.#emit({ type: "fault", error: new Error(`server: ${code}${message === "" ? "" : `: ${message}`}`) });
  }

  #tick(now: number): void {
    if (!this.#connected()) return;
    const silence = this.#ready() ? this.#pingMs + SILENCE_GRACE_MS : GREETING_MS;
    if (now - this.#heardAt > silence) {
      this.#emit({ type: "close", socket: this.#socket, code: closeCodes.hello_timeout, reason: "silence" });
      return this.#closed(now, 1006, "no sign of life");
    }
    if (!this.#ready()) return;
    this.#maybeAck(now);
    this.#flushOutbox(now);
    if (this.#refreshAt !== undefined && now >= this.#refreshAt) {
      this.#refreshAt = undefined;
      this.#emit({ type: "fetch_token", purpose: "refresh" });
    }
  }

  /** The server or the product broke the stream: leave the socket and resume from the cursor, within the budget. */
  #fail(now: number, error: Error, reason: string): void {
    this.#emit({ type: "fault", error });
    this.#emit({ type: "close", socket: this.#socket, code: closeCodes.gap, reason });
    this.#closed(now, closeCodes.gap, reason);
  }

  #closed(now: number, code: number, reason: string): void {
    this.#lost();
    const cause: Cause = { code, kind: "closed", reason };
    switch (closeAction(code)) {
      case "stop":
        return this.#rest(cause);
      case "fresh":
        // A token that is refused as expired again and again must not turn into a busy loop.
        if (!this.#backoff.untouched) return this.#wait(now, cause);
        this.#backoff.next();
        return this.#authorize();
      case "retry":
        return this.#wait(now, cause);
    }
  }

  #wait(now: number, cause: Cause): void {
    const ms = this.#backoff.next();
    if (ms === undefined) return this.#rest({ ...cause, kind: "budget" });
    this.#cause = cause;
    this.#retryAt = now + ms;
    this.#enter("waiting");
    this.#emit({ type: "retry_in", ms });
  }

  #rest(cause: Cause): void {
    this.#cause = cause;
    this.#retryAt = undefined;
    this.#enter("stopped");
  }

  #authorize(): void {
    this.#cause = undefined;
    this.#retryAt = undefined;
    this.#enter("authorizing");
    this.#emit({ type: "fetch_token", purpose: "connect" });
  }

  /** Forgets everything that belongs to one connection. */
  #lost(): void {
    this.#outbox.disconnected();
    this.#parts = undefined;
    this.#refreshAt = undefined;
    // Deliveries that were never reported are known to nobody: the resume brings them again.
    for (const item of this.#out.values()) {
      this.#known.delete(item.id);
      if (item.run !== undefined) this.#ended.delete(item.run);
    }
    this.#out.clear();
    for (const ref of this.#requests) {
      this.#emit({ type: "request_failed", ref, code: "disconnected", message: "the connection was lost" });
    }
    this.#requests.clear();
  }

  #hello(): Record<string, unknown> {
    const { channels, session, from, render, client, maxFrame } = this.#options;
    const hello: Record<string, unknown> = { type: "hello", token: this.#token, session, cursor: this.#cursor };
    hello["from"] = from ?? "tail";
    hello["channels"] = channels;
    if (render !== undefined) hello["render"] = render;
    if (client !== undefined) hello["client"] = client;
    hello["maxFrame"] = maxFrame ?? 32_768;
    return hello;
  }

  #authRef(): string {
    return `auth-${this.#refreshRef}`;
  }

  #connected(): boolean {
    return this.#phase === "connecting" || this.#phase === "greeting" || this.#ready();
  }

  #ready(): boolean {
    return this.#phase === "replaying" || this.#phase === "live";
  }

  #enter(phase: Phase): void {
    this.#phase = phase;
    this.#emit({ type: "status", status: this.status });
  }

  #emitOutbox(): void {
    this.#emit({ type: "outbox", inputs: this.#outbox.inputs() });
  }

  #send(frame: Record<string, unknown>): void {
    this.#emit({ type: "send", socket: this.#socket, text: JSON.stringify(frame) });
  }

  #emit(effect: Effect): void {
    this.#effects.push(effect);
  }
}

/** A token is refreshed when a fifth of its life is left, but no earlier than a minute before its end. */
function refreshAfterMs(expiresInSeconds: number): number {
  const life = expiresInSeconds * 1000;
  return life - Math.min(60_000, life / 5);
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
