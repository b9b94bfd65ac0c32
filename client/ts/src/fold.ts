/**
 * A fold of a room's stream into what a page shows: messages by channel, runs, agents and phase.
 *
 * A {@link View} is plain JSON, so that it can be stored together with the cursor it belongs to and taken up again
 * after a reload. The functions change the view in place and answer what they touched. An item that is already in the
 * view changes nothing.
 */

import { agentList } from "./check.js";
import type { AgentInfo, Disclosure, Item, StateFrame } from "./frames.js";
import type { RunStatus } from "./words.js";

/**
 * `open` grows; `closed` is whole; `interrupted` was cut by the end of its run and keeps what it had; `abandoned`
 * belongs to an attempt that was given up and has lost its text (R3).
 */
export type MessageStatus = "open" | "closed" | "interrupted" | "abandoned";

/** One contribution to a channel: an input of a person, or an output of an agent. */
export interface Message {
  /** Unique in the view and the same after a reload. */
  key: string;
  kind: "input" | "output";
  channel: string;
  /** Time of the first entry, RFC 3339; empty when only a state told of the message. */
  at: string;
  speaker: { kind: string; id: string };
  text: string;
  status: MessageStatus;
  /** `answer`, `question` or `progress`; `answer` for inputs. */
  purpose: string;
  run?: string;
  attempt?: number;
  /** Absent: the whole room. */
  disclosure?: Disclosure;
  /** Only for one's own inputs. */
  inputId?: string;
  modality?: string;
}

/** A run as its public events tell it. */
export interface RunView {
  id: string;
  channel: string;
  agent: string;
  status: RunStatus;
  attempt: number;
  /** Who asked, when the input is in the view. */
  askedBy?: string;
  /** The latest progress, while the run is active. */
  progress?: Record<string, unknown>;
  /** Of a canceled run. */
  reason?: string;
  /** Of a failed run: a word for programs and the public text. */
  code?: string;
  message?: string;
}

/** Everything the stream has told so far. */
export interface View {
  /** Version of this shape: 1. A stored view of another version is of no use. */
  version: 1;
  messages: Record<string, Message[]>;
  runs: Record<string, RunView>;
  agents: AgentInfo[];
  phase: string;
  /** Ids of the newest items, so that none is folded twice. */
  seen: string[];
}

/** What a fold touched. */
export interface Change {
  messages: Message[];
  runs: RunView[];
  /** Agents or phase. */
  room: boolean;
}

const SEEN_LIMIT = 256;

/** A view of which nothing is known yet. */
export function emptyView(): View {
  return { version: 1, messages: {}, runs: {}, agents: [], phase: "", seen: [] };
}

/**
 * Begins a view anew from the state at the beginning of a stream.
 *
 * @param me The viewer's subject: a run that names its input to the viewer was asked for by it.
 */
export function foldState(state: StateFrame, me: string): View {
  const view = emptyView();
  view.agents = state.room?.agents ?? [];
  view.phase = state.room?.phase ?? "";
  for (const { run: id, channel, agent, status, attempt, inputId, disclosure, outputs } of state.runs) {
    const run: RunView = { id, channel, agent, status: status as RunStatus, attempt };
    if (inputId !== undefined) run.askedBy = me;
    view.runs[id] = run;
    for (const output of outputs) {
      const seenBy = output.disclosure ?? disclosure;
      lane(view, channel).push({
        ...(seenBy === undefined ? {} : { disclosure: seenBy }),
        key: outputKey(id, output.outputId),
        kind: "output",
        channel,
        at: "",
        speaker: { kind: "agent", id: agent },
        text: output.text,
        status: output.final ? "closed" : "open",
        purpose: output.purpose,
        run: id,
        attempt,
      });
    }
  }
  return view;
}

/** Folds one item. An item of a kind that a view does not show changes nothing. */
export function foldItem(view: View, item: Item): Change {
  const change: Change = { messages: [], runs: [], room: false };
  if (view.seen.includes(item.id)) return change;
  view.seen.push(item.id);
  if (view.seen.length > SEEN_LIMIT) view.seen.shift();
  if (item.kind === "input") foldInput(view, item, change);
  else if (item.kind === "run.event") foldRunEvent(view, item, change);
  else if (item.kind === "room") {
    if (typeof item.body["phase"] === "string") view.phase = item.body["phase"];
    if (item.body["agents"] !== undefined) view.agents = agentList(item.body["agents"], "room.agents");
    change.room = true;
  }
  return change;
}

/** The run of a channel that is open: active, or waiting for an answer. */
export function openRun(view: View, channel: string): RunView | undefined {
  return Object.values(view.runs).find(
    (run) => run.channel === channel && (run.status === "active" || run.status === "waiting_for_input"),
  );
}

/** Whether a run in this status has ended. */
export function isTerminal(status: RunStatus): boolean {
  return status === "completed" || status === "canceled" || status === "deadline_exceeded" || status === "failed";
}

function foldInput(view: View, item: Item, change: Change): void {
  const body = item.body as { text: string; speaker: { kind: string; id: string }; [member: string]: unknown };
  const message: Message = {
    key: item.id,
    kind: "input",
    channel: item.channel ?? "",
    at: item.at,
    speaker: { kind: body.speaker.kind, id: body.speaker.id },
    text: body.text,
    status: "closed",
    purpose: "answer",
  };
  if (item.disclosure !== undefined) message.disclosure = item.disclosure;
  if (typeof body["inputId"] === "string") message.inputId = body["inputId"];
  if (typeof body["modality"] === "string") message.modality = body["modality"];
  if (item.run !== undefined) {
    message.run = item.run;
    const run = runOf(view, item, change);
    if (!isTerminal(run.status)) run.status = body["state"] === "queued" ? "queued" : "active";
    run.askedBy ??= body.speaker.id;
    const agent = item.agent ?? body["agent"];
    if (run.agent === "" && typeof agent === "string") run.agent = agent;
  }
  lane(view, message.channel).push(message);
  change.messages.push(message);
}

function foldRunEvent(view: View, item: Item, change: Change): void {
  const run = runOf(view, item, change);
  if (isTerminal(run.status)) return;
  const body = item.body;
  switch (body["type"]) {
    case "attempt_started": {
      const attempt = item.attempt ?? (typeof body["attempt"] === "number" ? body["attempt"] : run.attempt + 1);
      for (const message of openOutputs(view, run)) {
        message.status = "abandoned";
        message.text = "";
        change.messages.push(message);
      }
      run.attempt = attempt;
      run.status = "active";
      delete run.progress;
      return;
    }
    case "assistant_output":
      return foldOutput(view, run, item, change);
    case "progress": {
      run.status = "active";
      const { type: _, ...progress } = body;
      run.progress = progress;
      return;
    }
    case "input_requested":
      run.status = "waiting_for_input";
      delete run.progress;
      return;
    case "completed":
      return end(view, run, "completed", change);
    case "run_canceled":
      if (typeof body["reason"] === "string") run.reason = body["reason"];
      return end(view, run, "canceled", change);
    case "deadline_exceeded":
      return end(view, run, "deadline_exceeded", change);
    case "run_failed":
      if (typeof body["code"] === "string") run.code = body["code"];
      if (typeof body["message"] === "string") run.message = body["message"];
      return end(view, run, "failed", change);
  }
}

function foldOutput(view: View, run: RunView, item: Item, change: Change): void {
  const body = item.body as { outputId: string; delta?: string; final?: boolean; purpose?: string };
  const key = outputKey(run.id, body.outputId);
  const messages = lane(view, run.channel);
  let message = messages.findLast((message) => message.key === key);
  if (message === undefined) {
    message = {
      key,
      kind: "output",
      channel: run.channel,
      at: item.at,
      speaker: { kind: "agent", id: run.agent },
      text: "",
      status: "open",
      purpose: body.purpose ?? "answer",
      run: run.id,
    };
    if (item.attempt !== undefined) message.attempt = item.attempt;
    messages.push(message);
  }
  // A delta for a closed or abandoned output cannot come from a server that keeps its rules; it changes nothing.
  if (message.status !== "open") return;
  if (item.disclosure !== undefined) message.disclosure = item.disclosure;
  message.text += body.delta ?? "";
  if (body.final === true) message.status = "closed";
  change.messages.push(message);
}

function end(view: View, run: RunView, status: RunStatus, change: Change): void {
  for (const message of openOutputs(view, run)) {
    message.status = status === "completed" ? "closed" : "interrupted";
    change.messages.push(message);
  }
  run.status = status;
  delete run.progress;
}

function openOutputs(view: View, run: RunView): Message[] {
  return lane(view, run.channel).filter((message) => message.run === run.id && message.status === "open");
}

function runOf(view: View, item: Item, change: Change): RunView {
  const id = item.run ?? "";
  let run = view.runs[id];
  if (run === undefined) {
    run = { id, channel: item.channel ?? "", agent: item.agent ?? "", status: "active", attempt: item.attempt ?? 0 };
    view.runs[id] = run;
  }
  if (run.agent === "" && item.agent !== undefined) run.agent = item.agent;
  change.runs.push(run);
  return run;
}

function lane(view: View, channel: string): Message[] {
  return (view.messages[channel] ??= []);
}

function outputKey(run: string, output: string): string {
  return `${run}/${output}`;
}
