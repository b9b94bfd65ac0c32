/**
 * Frames of `parley.v1` as a client sees them: their types and the check of what a server sent.
 *
 * The check is structural and forgiving in one direction only: unknown members, unknown frame types and unknown item
 * kinds pass, because a newer server may send them; a known member of the wrong shape is a {@link FrameError}.
 */

import {
  type BusyPolicy,
  type DisclosureKind,
  type Modality,
  type ResetReason,
  type RunStatus,
  serverFrameTypes,
  terminalEventTypes,
} from "./words.js";

/** Who may see a thing at most. An absent disclosure on an item means the whole room. */
export interface Disclosure {
  kind: DisclosureKind;
  /** Set exactly when `kind` is `participants`. */
  participantIds?: string[];
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
  /** Only on `input` items, and only for the speaker and the host. */
  inputId?: string;
  /** The members that belong to the kind. */
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
}

/** An open run, in a `state` frame. */
export interface RunState {
  run: string;
  channel: string;
  agent: string;
  status: RunStatus | string;
  attempt: number;
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

/** The state at the position where a stream begins that was not resumed; sent in parts. */
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

/** A frame that breaks the protocol. The message names the member and what was expected, never a value. */
export class FrameError extends Error {
  /** Path of the member, such as `items[2].id`; empty for the frame itself. */
  readonly path: string;

  constructor(path: string, expected: string) {
    super(`${path === "" ? "frame" : path}: ${expected}`);
    this.name = "FrameError";
    this.path = path;
  }
}

/**
 * Parses and checks one text frame of a server.
 *
 * @throws FrameError when the text is not a JSON object with a `type`, or a known member has a wrong shape.
 */
export function parseServerFrame(text: string): ServerFrame {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new FrameError("", "not JSON");
  }
  const frame = object(value, "");
  const type = string(frame, "type", "");
  if (!(serverFrameTypes as readonly string[]).includes(type)) return { type: "other", name: type, frame };
  switch (type) {
    case "ready":
      return ready(frame);
    case "state":
      return state(frame);
    case "events":
      return events(frame);
    case "caught_up":
      string(frame, "cursor", "");
      break;
    case "accepted":
      string(frame, "id", "");
      for (const member of ["entry", "run", "at", "state"]) optionalString(frame, member, "");
      frame["duplicate"] = optionalBoolean(frame, "duplicate", "") ?? false;
      break;
    case "done":
      string(frame, "ref", "");
      break;
    case "error":
      optionalString(frame, "ref", "");
      string(frame, "code", "");
      frame["message"] = optionalString(frame, "message", "") ?? "";
      if (frame["retryMs"] !== undefined) count(frame, "retryMs", "");
      frame["fatal"] = optionalBoolean(frame, "fatal", "") ?? false;
      break;
    case "ping":
      optionalString(frame, "cursor", "");
      break;
    case "goaway":
      frame["reason"] = optionalString(frame, "reason", "") ?? "";
      frame["afterMs"] = frame["afterMs"] === undefined ? 0 : count(frame, "afterMs", "");
      break;
    case "subscribed":
      string(frame, "ref", "");
      strings(frame["channels"], "channels");
      rights(frame["can"], "can");
      break;
    default:
      return { type: "other", name: type, frame };
  }
  return frame as unknown as ServerFrame;
}

function ready(frame: Record<string, unknown>): ReadyFrame {
  for (const member of ["conn", "sub", "cursor"]) string(frame, member, "");
  if (typeof frame["resumed"] !== "boolean") throw new FrameError("resumed", "expected a boolean");
  optionalString(frame, "reason", "");
  rights(frame["can"], "can");
  for (const member of ["expiresIn", "pingMs", "maxFrame", "window"]) count(frame, member, "");
  return frame as unknown as ReadyFrame;
}

function state(frame: Record<string, unknown>): StateFrame {
  const part = frame["part"] === undefined ? 1 : count(frame, "part", "");
  const parts = frame["parts"] === undefined ? 1 : count(frame, "parts", "");
  if (part < 1 || part > parts) throw new FrameError("part", "expected a number from 1 to parts");
  const result: StateFrame = { type: "state", part, parts, captions: list(frame["captions"], "captions"), runs: [] };
  if (frame["room"] !== undefined) result.room = roomState(object(frame["room"], "room"));
  list(frame["runs"], "runs").forEach((value, i) => {
    const path = `runs[${i}]`;
    const run = object(value, path);
    const outputs = list(run["outputs"], `${path}.outputs`).map((value, k): OutputState => {
      const at = `${path}.outputs[${k}]`;
      const output = object(value, at);
      return {
        outputId: string(output, "outputId", at),
        purpose: optionalString(output, "purpose", at) ?? "answer",
        text: optionalString(output, "text", at) ?? "",
      };
    });
    result.runs.push({
      run: string(run, "run", path),
      channel: string(run, "channel", path),
      agent: optionalString(run, "agent", path) ?? "",
      status: string(run, "status", path),
      attempt: run["attempt"] === undefined ? 0 : count(run, "attempt", path),
      outputs,
      approvals: list(run["approvals"], `${path}.approvals`),
    });
  });
  return result;
}

function roomState(room: Record<string, unknown>): RoomState {
  const result: RoomState = { agents: agentList(room["agents"], "room.agents") };
  const phase = optionalString(room, "phase", "room");
  if (phase !== undefined) result.phase = phase;
  if (room["focus"] !== undefined) result.focus = room["focus"];
  return result;
}

/**
 * Checks a list of agents as it stands in `state` frames and `room` items. Absent counts as empty.
 *
 * @throws FrameError with the path of the wrong member below `path`.
 */
export function agentList(value: unknown, path: string): AgentInfo[] {
  return list(value, path).map((value, i) => {
    const agent = object(value, `${path}[${i}]`);
    string(agent, "id", `${path}[${i}]`);
    for (const member of ["label", "role", "description"]) optionalString(agent, member, `${path}[${i}]`);
    return agent as unknown as AgentInfo;
  });
}

function events(frame: Record<string, unknown>): EventsFrame {
  const n = count(frame, "n", "");
  if (n < 1) throw new FrameError("n", "expected a number from 1");
  string(frame, "cursor", "");
  if (!Array.isArray(frame["items"])) throw new FrameError("items", "expected a list");
  frame["items"].forEach((value, i) => item(value, `items[${i}]`));
  return frame as unknown as EventsFrame;
}

function item(value: unknown, path: string): void {
  const item = object(value, path);
  const kind = string(item, "kind", path);
  string(item, "id", path);
  string(item, "at", path);
  for (const member of ["channel", "run", "agent", "inputId"]) optionalString(item, member, path);
  if (item["attempt"] !== undefined) count(item, "attempt", path);
  if (item["disclosure"] !== undefined) disclosure(item["disclosure"], `${path}.disclosure`);
  const body = object(item["body"], `${path}.body`);
  if (kind === "input") {
    string(item, "channel", path);
    string(body, "text", `${path}.body`);
    const speaker = object(body["speaker"], `${path}.body.speaker`);
    string(speaker, "kind", `${path}.body.speaker`);
    string(speaker, "id", `${path}.body.speaker`);
  } else if (kind === "run.event") {
    string(item, "channel", path);
    string(item, "run", path);
    const type = string(body, "type", `${path}.body`);
    if (type === "assistant_output") {
      string(body, "outputId", `${path}.body`);
      if (body["delta"] !== undefined) string(body, "delta", `${path}.body`);
    }
  } else if (kind === "room") {
    optionalString(body, "phase", `${path}.body`);
    agentList(body["agents"], `${path}.body.agents`);
  }
}

function disclosure(value: unknown, path: string): void {
  const disclosure = object(value, path);
  const kind = string(disclosure, "kind", path);
  if (kind === "participants") strings(disclosure["participantIds"], `${path}.participantIds`);
}

function rights(value: unknown, path: string): void {
  for (const [channel, words] of Object.entries(object(value, path))) strings(words, `${path}[${channel}]`);
}

function object(value: unknown, path: string): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new FrameError(path, "expected an object");
  }
  return value as Record<string, unknown>;
}

function list(value: unknown, path: string): unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw new FrameError(path, "expected a list");
  return value;
}

function strings(value: unknown, path: string): void {
  if (!Array.isArray(value) || value.some((entry) => typeof entry !== "string")) {
    throw new FrameError(path, "expected a list of strings");
  }
}

function string(owner: Record<string, unknown>, member: string, path: string): string {
  const value = owner[member];
  if (typeof value !== "string") throw new FrameError(join(path, member), "expected a string");
  return value;
}

function optionalString(owner: Record<string, unknown>, member: string, path: string): string | undefined {
  return owner[member] === undefined || owner[member] === null ? undefined : string(owner, member, path);
}

function optionalBoolean(owner: Record<string, unknown>, member: string, path: string): boolean | undefined {
  const value = owner[member];
  if (value !== undefined && typeof value !== "boolean") throw new FrameError(join(path, member), "expected a boolean");
  return value;
}

function count(owner: Record<string, unknown>, member: string, path: string): number {
  const value = owner[member];
  if (typeof value !== "number" || !Number.isSafeInteger(value) || value < 0) {
    throw new FrameError(join(path, member), "expected a whole number from 0");
  }
  return value;
}

function join(path: string, member: string): string {
  return path === "" ? member : `${path}.${member}`;
}

/** Whether a run event's type ends its run. */
export function isTerminalEvent(type: unknown): boolean {
  return (terminalEventTypes as readonly unknown[]).includes(type);
}
