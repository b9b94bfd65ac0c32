/** Frames of `parley.v1` as a client sees them. */

import type { BusyPolicy, DisclosureKind, Modality, ResetReason, RunStatus } from "./words.js";

/** Who may see a thing at most. An absent disclosure on an item means the whole room. */
export interface Disclosure {
  kind: DisclosureKind;
  /** Set exactly when `kind` is `participants`. */
  participantIds?: string[];
  /** How many participants there are beyond those listed, when the list is too long for a frame. */
  more?: number;
}

/** One durable entry of the room as this viewer may see it. */
export interface Item {
  /** Stable for all viewers and across reconnects; unordered. */
  id: string;
  /** Commit time, RFC 3339 in UTC. */
  at: string;
  channel?: string;
  /** One of `itemKinds`, or a word of a newer server. */
  kind: string;
  run?: string;
  agent?: string;
  /** Attempt of the run, from 1; 0 for a run that was canceled while queued. */
  attempt?: number;
  disclosure?: Disclosure;
  /**
   * The members that belong to the kind. `inputId` stands in the body of an `input` for its speaker and the host
   * only. A body that is too large for a frame is `{type, omitted: true}`.
   */
  body: Record<string, unknown>;
}

/** Rights of the connection by channel; a channel without any right is absent. */
export type Rights = Record<string, string[]>;

/** The server's answer to `hello`. */
export interface ReadyFrame {
  type: "ready";
  conn: string;
  /** The authenticated subject. */
  sub: string;
  /** Whether the stream goes on from the cursor that was asked for. */
  resumed: boolean;
  reason?: ResetReason | string;
  cursor: string;
  can: Rights;
  /** Seconds until the token expires. */
  expiresIn: number;
  /** Milliseconds between the server's pings. */
  pingMs: number;
  /** Bytes of the largest frame the server will send. */
  maxFrame: number;
  /** Items the server sends at most before it waits for an `ack`. */
  window: number;
}

/** Text so far of an output, in a `state` frame. */
export interface OutputState {
  outputId: string;
  purpose: string;
  text: string;
  /** The output is closed. */
  final: boolean;
  disclosure?: Disclosure;
}

/** An open run, in a `state` frame. */
export interface RunState {
  run: string;
  channel: string;
  agent: string;
  status: RunStatus | string;
  attempt: number;
  /** The input that the run works on; only for its speaker and the host. */
  inputId?: string;
  /** Absent: the whole room. */
  disclosure?: Disclosure;
  outputs: OutputState[];
  approvals: unknown[];
}

/** An agent of the room. Members beyond these are kept as sent. */
export interface AgentInfo {
  id: string;
  label?: string;
  role?: string;
  description?: string;
}

/** What a `state` says of the room. */
export interface RoomState {
  phase?: string;
  agents: AgentInfo[];
  focus?: unknown;
}

/**
 * The state at the position where a stream begins that was not resumed; sent in parts. Lists go on from part to part:
 * a run that is named again has more outputs, and an output that is named again has more text.
 */
export interface StateFrame {
  type: "state";
  /** From 1. */
  part: number;
  parts: number;
  room?: RoomState;
  captions: unknown[];
  runs: RunState[];
}

/** A batch of items. */
export interface EventsFrame {
  type: "events";
  /** Number of the first item, dense from 1 in the connection. */
  n: number;
  /** Position after the last item of the frame. */
  cursor: string;
  items: Item[];
}

/** The stream has reached the present. */
export interface CaughtUpFrame {
  type: "caught_up";
  cursor: string;
}

/** An input is durable. */
export interface AcceptedFrame {
  type: "accepted";
  /** The input id. */
  id: string;
  /** Entry id of the input's item. */
  entry?: string;
  run?: string;
  at?: string;
  state?: string;
  duplicate: boolean;
}

/** A request other than an input was carried out. Its result stands in the other members. */
export interface DoneFrame {
  type: "done";
  ref: string;
  [member: string]: unknown;
}

/** A refusal, or a fault of the connection. */
export interface ErrorFrame {
  type: "error";
  /** Input id or `ref` of the request that is refused; absent when it is about the connection. */
  ref?: string;
  /** One of `errorCodes`, or a word of a newer server. */
  code: string;
  /** Public text. */
  message: string;
  /** Milliseconds after which the same request may succeed. */
  retryMs?: number;
  /** The server closes the connection after this frame. */
  fatal: boolean;
}

/** Sent on a fixed clock; answered by `pong` with the same `t`. */
export interface PingFrame {
  type: "ping";
  t: unknown;
  /** Position after all items sent so far. */
  cursor?: string;
}

/** The server is about to close the connection. */
export interface GoawayFrame {
  type: "goaway";
  reason: string;
  /** Milliseconds until it does. */
  afterMs: number;
}

/** Channels were added. */
export interface SubscribedFrame {
  type: "subscribed";
  ref: string;
  channels: string[];
  can: Rights;
}

/** A frame whose members are not checked here: droppable hints, speech, cues, and types of newer servers. */
export interface OtherFrame {
  type: "other";
  /** The type on the wire. */
  name: string;
  frame: Record<string, unknown>;
}

/** Any frame of a server. */
export type ServerFrame =
  | ReadyFrame
  | StateFrame
  | EventsFrame
  | CaughtUpFrame
  | AcceptedFrame
  | DoneFrame
  | ErrorFrame
  | PingFrame
  | GoawayFrame
  | SubscribedFrame
  | OtherFrame;

/** An input as the product gives it. The machine adds the frame's `type`. */
export interface Input {
  /** Idempotency key, unique for the speaker and channel. */
  id: string;
  channel: string;
  text: string;
  modality: Modality;
  lang?: string;
  /** Addressed agents, in order of preference. */
  agents?: string[];
  disclosure?: Disclosure;
  onBusy?: BusyPolicy;
  continuation?: { run: string; requestId?: string; token?: string };
  /** Milliseconds the run may take. */
  deadlineMs?: number;
  /** End of the utterance, RFC 3339. */
  endedAt?: string;
}
