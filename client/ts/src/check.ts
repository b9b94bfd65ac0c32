/**
 * The check of what a server sent (K2). It is structural and forgiving in one direction only: unknown members, unknown
 * frame types and unknown item kinds pass, because a newer server may send them; a known member of the wrong shape is
 * a {@link FrameError}.
 */

import type {
  AgentInfo,
  Disclosure,
  EventsFrame,
  OutputState,
  ReadyFrame,
  RoomState,
  RunState,
  ServerFrame,
  StateFrame,
} from "./frames.js";
import { serverFrameTypes, terminalEventTypes } from "./words.js";

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
        final: optionalBoolean(output, "final", at) ?? false,
        ...optionalDisclosure(output, at),
      };
    });
    const inputId = optionalString(run, "inputId", path);
    result.runs.push({
      ...(inputId === undefined ? {} : { inputId }),
      ...optionalDisclosure(run, path),
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

/** Puts the parts of a state together, in their order. */
export function joinState(parts: readonly StateFrame[]): StateFrame {
  const whole: StateFrame = { type: "state", part: 1, parts: 1, captions: [], runs: [] };
  const runs = new Map<string, RunState>();
  for (const part of parts) {
    if (part.room !== undefined) {
      const agents = [...(whole.room?.agents ?? []), ...part.room.agents];
      whole.room = { ...whole.room, ...part.room, agents };
    }
    whole.captions.push(...part.captions);
    for (const more of part.runs) {
      const run = runs.get(more.run);
      if (run === undefined) {
        runs.set(more.run, { ...more, outputs: [...more.outputs] });
        continue;
      }
      run.approvals = [...run.approvals, ...more.approvals];
      for (const output of more.outputs) {
        const at = run.outputs.findIndex((known) => known.outputId === output.outputId);
        const known = run.outputs[at];
        if (known === undefined) run.outputs.push(output);
        else run.outputs[at] = { ...known, text: known.text + output.text, final: output.final };
      }
    }
  }
  whole.runs = [...runs.values()];
  return whole;
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
  for (const member of ["channel", "run", "agent"]) optionalString(item, member, path);
  if (item["attempt"] !== undefined) count(item, "attempt", path);
  optionalDisclosure(item, path);
  const body = object(item["body"], `${path}.body`);
  if (kind === "input") {
    string(item, "channel", path);
    string(body, "text", `${path}.body`);
    optionalString(body, "inputId", `${path}.body`);
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

function optionalDisclosure(owner: Record<string, unknown>, path: string): { disclosure?: Disclosure } {
  if (owner["disclosure"] === undefined) return {};
  const at = join(path, "disclosure");
  const disclosure = object(owner["disclosure"], at);
  if (string(disclosure, "kind", at) === "participants") strings(disclosure["participantIds"], `${at}.participantIds`);
  if (disclosure["more"] !== undefined) count(disclosure, "more", at);
  return { disclosure: disclosure as unknown as Disclosure };
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
