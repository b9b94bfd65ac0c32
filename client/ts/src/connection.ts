/**
 * A connection to one room over WebSocket: the shell around the {@link Machine}. It owns the socket and the timers;
 * every rule is the machine's. Clock, randomness, socket, token and storage come in through small interfaces, so that
 * a product or a test can bring its own.
 */

import type { Effect, MachineEvent, MachineOptions, Status } from "./effects.js";
import type { AcceptedFrame, Input, Item, OtherFrame, StateFrame } from "./frames.js";
import { Machine } from "./machine.js";
import { SUBPROTOCOL } from "./words.js";

/** The part of a browser's WebSocket that is used. */
export interface Socket {
  onopen: ((event: never) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  send(text: string): void;
  close(code: number, reason: string): void;
}

/** Opens a socket, as the WebSocket constructor does. */
export type SocketOpener = (url: string, protocol: string) => Socket;

/** Time. `now` is milliseconds of a clock that never goes back. */
export interface Clock {
  now(): number;
  /** Calls `run` once after `ms` milliseconds; answers what `cancel` takes. */
  after(ms: number, run: () => void): unknown;
  cancel(timer: unknown): void;
}

/** Keeps the outbox across lives of the client. */
export interface OutboxStore {
  load(): Input[];
  save(inputs: Input[]): void;
}

/** The product's side. Each method is called synchronously and in order; only `reset` and `item` may throw. */
export interface Handler {
  /** A stream begins that is not a continuation: what was folded before is void. A throw makes the client resume. */
  reset(state: StateFrame, reason: string): void;
  /** One item, never twice in a life of the connection. A throw keeps the cursor where it is and makes it resume. */
  item(item: Item): void;
  /** Everything up to this cursor was handled; store it together with what was made of the items. */
  cursor(cursor: string): void;
  /** The connection changed. */
  status?(status: Status): void;
  /** The inputs that are not yet durable, oldest first. */
  outbox?(inputs: Input[]): void;
  /** An input is durable. */
  accepted?(frame: AcceptedFrame): void;
  /** The server asked to send an input later, which happens by itself. */
  deferred?(id: string, code: string, message: string): void;
  /** An input was refused for good, by the server or, with code `outbox_full`, here. */
  refused?(id: string, code: string, message: string): void;
  /** Something went wrong that the connection has dealt with. */
  fault?(error: Error): void;
  /** A frame that the connection does not interpret: hints, speech, cues, types of newer servers. */
  other?(frame: OtherFrame): void;
}

/** Thrown by a token source when asking again is useless; the connection stops. Other errors are retried. */
export class TokenRefused extends Error {
  constructor(message: string) {
    super(message);
    this.name = "TokenRefused";
  }
}

/** A request was refused, or the connection was lost before its answer. */
export class RequestError extends Error {
  /** The server's code, or `disconnected`: whether the request was carried out is then unknown. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message === "" ? code : message);
    this.name = "RequestError";
    this.code = code;
  }
}

/** What a product sets; everything of the machine's options but its outbox and, if wanted, its randomness. */
export interface ConnectionOptions extends Omit<MachineOptions, "outbox" | "random"> {
  /** Address of the room's socket, with the scheme ws or wss. */
  url: string;
  /** Answers a token; asked before each try and before the token in use expires. */
  token: () => Promise<string>;
  handler: Handler;
  outbox?: OutboxStore;
  socket?: SocketOpener;
  clock?: Clock;
  random?: () => number;
}

const TICK_MS = 1_000;

const systemClock: Clock = {
  now: () => performance.now(),
  after: (ms, run) => setTimeout(run, ms),
  cancel: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
};

const browserSocket: SocketOpener = (url, protocol) => new WebSocket(url, protocol) as unknown as Socket;

/** A connection that keeps itself up from `start` to `stop`. Single-threaded, like the page it lives in. */
export class Connection {
  readonly #options: ConnectionOptions;
  readonly #machine: Machine;
  readonly #clock: Clock;
  readonly #open: SocketOpener;
  readonly #waiting: MachineEvent[] = [];
  readonly #requests = new Map<
    string,
    { resolve: (result: Record<string, unknown>) => void; reject: (error: RequestError) => void }
  >();
  #running = false;
  #socket: Socket | undefined;
  #retry: unknown;
  #tick: unknown;
  #ref = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#open = options.socket ?? browserSocket;
    this.#machine = new Machine({
      ...options,
      outbox: options.outbox?.load() ?? [],
      random: options.random ?? Math.random,
    });
  }

  /** The present status. */
  get status(): Status {
    return this.#machine.status;
  }

  /** The inputs that are not yet durable, oldest first. */
  get outbox(): Input[] {
    return this.#machine.outbox;
  }

  /** Connects, also again after the connection stopped. */
  start(): void {
    this.#dispatch({ type: "start", now: this.#clock.now() });
  }

  /** Closes the connection and stays away until `start`. */
  stop(): void {
    this.#dispatch({ type: "stop", now: this.#clock.now() });
  }

  /** Tries at once if the connection waits for its next try; for when the network is back or the page is shown. */
  retryNow(): void {
    this.#dispatch({ type: "retry", now: this.#clock.now() });
  }

  /** Tells whether the page is hidden, where timers may be slow. */
  setHidden(hidden: boolean): void {
    this.#dispatch({ type: "hidden", hidden, now: this.#clock.now() });
  }

  /** Puts an input into the outbox, from where it is sent until it is durable or refused for good. */
  submit(input: Input): void {
    this.#dispatch({ type: "submit", input, now: this.#clock.now() });
  }

  /**
   * Sends a request and answers the members of its `done`. It is never sent twice.
   *
   * @throws RequestError (as a rejection) when it is refused or the connection is not up or is lost.
   */
  request(type: "cancel" | "focus" | "interrupt" | "subscribe", members: object): Promise<Record<string, unknown>> {
    const ref = `r-${++this.#ref}`;
    return new Promise((resolve, reject) => {
      this.#requests.set(ref, { resolve, reject });
      this.#dispatch({ type: "request", ref, frame: { type, ...members }, now: this.#clock.now() });
    });
  }

  /** Cancels a run. Answers whether this call ended it, and the run's status. */
  async cancel(run: string): Promise<{ canceled: boolean; status: string }> {
    const done = await this.request("cancel", { run });
    return { canceled: done["canceled"] === true, status: String(done["status"] ?? "") };
  }

  // An event from inside a handler waits until the effects in hand are done, so that their order holds.
  #dispatch(event: MachineEvent): void {
    this.#waiting.push(event);
    if (this.#running) return;
    this.#running = true;
    try {
      for (let next = this.#waiting.shift(); next !== undefined; next = this.#waiting.shift()) {
        this.#run(this.#machine.handle(next));
      }
    } finally {
      this.#running = false;
    }
  }

  #run(effects: Effect[]): void {
    for (const effect of effects) this.#carryOut(effect);
  }

  #carryOut(effect: Effect): void {
    const { handler } = this.#options;
    switch (effect.type) {
      case "fetch_token":
        return this.#fetchToken();
      case "open":
        return this.#openSocket(effect.socket);
      case "send":
        return this.#socket?.send(effect.text);
      case "close":
        return this.#closeSocket(effect.code, effect.reason);
      case "retry_in":
        this.#retry = this.#clock.after(effect.ms, () => this.retryNow());
        return;
      case "deliver":
      case "reset":
        return this.#deliver(effect);
      case "cursor":
        return handler.cursor(effect.cursor);
      case "outbox":
        this.#options.outbox?.save(effect.inputs);
        return handler.outbox?.(effect.inputs);
      case "accepted":
        return handler.accepted?.(effect.frame);
      case "deferred":
        return handler.deferred?.(effect.id, effect.code, effect.message);
      case "refused":
        return handler.refused?.(effect.id, effect.code, effect.message);
      case "done":
        this.#requests.get(effect.ref)?.resolve(effect.frame);
        this.#requests.delete(effect.ref);
        return;
      case "request_failed":
        this.#requests.get(effect.ref)?.reject(new RequestError(effect.code, effect.message));
        this.#requests.delete(effect.ref);
        return;
      case "status":
        return this.#onStatus(effect.status);
      case "fault":
        return handler.fault?.(effect.error);
      case "other":
        return handler.other?.(effect.frame);
    }
  }

  #deliver(effect: Effect & { type: "deliver" | "reset" }): void {
    const { socket, n } = effect;
    if (!this.#machine.owes(socket, n)) return;
    let report: MachineEvent;
    try {
      if (effect.type === "deliver") this.#options.handler.item(effect.item);
      else this.#options.handler.reset(effect.state, effect.reason);
      report = { type: "handled", socket, n, now: this.#clock.now() };
    } catch (error) {
      report = { type: "handler_failed", socket, n, error, now: this.#clock.now() };
    }
    this.#run(this.#machine.handle(report));
  }

  #fetchToken(): void {
    this.#options.token().then(
      (token) => this.#dispatch({ type: "token", token, now: this.#clock.now() }),
      (error: unknown) => {
        const reason = error instanceof Error ? error.message : String(error);
        const final = error instanceof TokenRefused;
        this.#dispatch({ type: "token_failed", reason, final, now: this.#clock.now() });
      },
    );
  }

  #openSocket(number: number): void {
    let socket: Socket;
    try {
      socket = this.#open(this.#options.url, SUBPROTOCOL);
    } catch (error) {
      // A browser throws for an address it will never open; reported like a failed try, so that the budget ends it.
      const reason = error instanceof Error ? error.message : "";
      return this.#dispatch({ type: "closed", socket: number, code: 1006, reason, now: this.#clock.now() });
    }
    this.#socket = socket;
    socket.onopen = () => this.#dispatch({ type: "opened", socket: number, now: this.#clock.now() });
    socket.onmessage = ({ data }) => {
      const text = typeof data === "string" ? data : "";
      this.#dispatch({ type: "frame", socket: number, text, now: this.#clock.now() });
    };
    socket.onclose = ({ code, reason }) => {
      this.#socket = undefined;
      this.#dispatch({ type: "closed", socket: number, code, reason, now: this.#clock.now() });
    };
    this.#startTicks();
  }

  /** A dead network may never answer a close, so nothing is awaited and nothing more is heard of the socket. */
  #closeSocket(code: number, reason: string): void {
    const socket = this.#socket;
    this.#socket = undefined;
    if (socket === undefined) return;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close(code, reason);
  }

  #startTicks(): void {
    if (this.#tick !== undefined) this.#clock.cancel(this.#tick);
    this.#tick = this.#clock.after(TICK_MS, () => {
      this.#tick = undefined;
      if (this.#socket === undefined) return;
      this.#startTicks();
      this.#dispatch({ type: "tick", now: this.#clock.now() });
    });
  }

  #onStatus(status: Status): void {
    if (status.phase !== "waiting" && this.#retry !== undefined) {
      this.#clock.cancel(this.#retry);
      this.#retry = undefined;
    }
    this.#options.handler.status?.(status);
  }
}
