/** What the page says to people: for refusals, closed connections, ends of runs and audiences. */

import type { Cause, Disclosure, ErrorCode, RunView } from "../../client/ts/src/index.js";

const refusals: Record<ErrorCode, string> = {
  bad_request: "The room could not read this message. Reload the page and send it again.",
  unknown_type: "The room does not know this kind of message. Reload the page to get its newest version.",
  invalid_text: "The text has characters that cannot be sent. Remove them and send it again.",
  blank_text: "Write something first.",
  text_too_long: "The text is too long. Shorten it and send it again.",
  forbidden: "You are not allowed to do this here.",
  channel_forbidden: "You are not allowed to write in this conversation. Choose the other one.",
  disclosure_required: "The room does not know who may see this, so it was not sent. Choose the other conversation.",
  disclosure_empty: "Nobody would be allowed to see this, so it was not sent.",
  no_agent: "There is nobody here to answer. Begin with @ and the name of an agent.",
  agent_unknown: "There is no agent of that name here. Check the name after the @.",
  input_conflict: "Another message was already sent under the same id. Send it again as a new one.",
  run_conflict: "An answer is still being given here. Wait for its end, then send it again.",
  queue_full: "Too many questions are waiting here. Send it again in a while.",
  not_waiting: "The question you answered is no longer open.",
  already_resolved: "The question was already answered.",
  continuation_mismatch: "This does not answer the question that is open. Send it again.",
  supersession_invalid: "The answer that this was to replace has already ended. Send it again.",
  protected_speech: "The agent may not be interrupted now. Send it again when it has finished.",
  not_found: "That is not here any more.",
  rate_limited: "You are faster than the room allows. It is sent again by itself in a moment.",
  unavailable: "The room cannot store anything right now. It is sent again by itself in a moment.",
  room_failed: "This room has a fault and cannot go on. Whoever runs the server has to look at it.",
  internal: "The server had a fault with this message. Send it again; if it fails again, change it.",
  cursor_invalid: "The place where you stopped reading was not found. Reload the page.",
  cursor_expired: "What you read last is older than the room keeps. Reload the page.",
  cursor_ahead: "The room is older than what you have read. Reload the page.",
};

/** Why an input or request was refused, and what to do. Unknown codes give the server's public text. */
export function refusal(code: string, message: string): string {
  if (code === "outbox_full") return "Too many messages are waiting to be sent, so this one was given up.";
  if (code === "disconnected") return "There is no connection right now. Try again when it is back.";
  if (code in refusals) return refusals[code as ErrorCode];
  return message === "" ? `The room refused this (${code}).` : message;
}

/** What a person can do about a connection that stopped. */
export interface Stop {
  text: string;
  action: "retry" | "reload" | "newcomer" | "none";
}

const stops: Record<number, Stop> = {
  1009: { text: "A message was too large for the room.", action: "reload" },
  4400: { text: "Page and server do not understand each other.", action: "reload" },
  4401: { text: "Your sign-in is no longer valid.", action: "newcomer" },
  4403: { text: "You are not allowed to read this room.", action: "newcomer" },
  4404: { text: "This room does not exist, or is not open to you.", action: "newcomer" },
  4406: { text: "This page is of another version than the server.", action: "reload" },
  4409: { text: "This conversation goes on in another tab.", action: "retry" },
  4410: { text: "This room was closed.", action: "none" },
};

/** Why the connection stopped, and what a person can do about it. */
export function stopped(cause: Cause | undefined): Stop {
  if (cause?.kind === "refused") return { text: "Your sign-in has ended.", action: "newcomer" };
  if (cause?.kind === "budget") return { text: "The server could not be reached for a long time.", action: "retry" };
  return stops[cause?.code ?? 0] ?? { text: `The connection was ended (${cause?.code ?? 0}).`, action: "retry" };
}

/** Why the page waits for its next try. */
export function waiting(cause: Cause | undefined): string {
  if (!navigator.onLine) return "You are offline.";
  switch (cause?.code) {
    case 1012:
      return "The server is restarting.";
    case 1013:
      return "The server is busy.";
    case 4429:
      return "Too many tabs of yours are in this room.";
    default:
      return "No connection.";
  }
}

/** How a run stands, for the line below its messages; empty when there is nothing to say. */
export function runLine(run: RunView, agent: string, mine: boolean, speaking: boolean, answered: boolean): string {
  switch (run.status) {
    case "queued":
      return "Waits until the answer before it has ended.";
    case "active":
      // Between two texts of an answer there is nothing to say unless the agent says it.
      return speaking ? "" : progressLine(run.progress) || (answered ? "" : `${agent} is at work.`);
    case "waiting_for_input":
      return mine ? `${agent} waits for your answer.` : `${agent} waits for an answer from ${run.askedBy ?? "somebody"}.`;
    case "completed":
      return answered ? "" : `${agent} had nothing to say.`;
    case "canceled":
      return canceled(run.reason);
    case "deadline_exceeded":
      return "Ended, because it took too long. Ask again, perhaps in smaller steps.";
    case "failed":
      return run.message || "The answer failed. Ask again.";
  }
}

function canceled(reason: string | undefined): string {
  switch (reason) {
    case "superseded_by_new_input":
      return "Set aside for a newer question.";
    case "interrupted":
      return "Interrupted: the room was stopped.";
    case "agent_removed":
    case "agent_replaced":
      return "Stopped, because the agent left.";
    default:
      return "Stopped.";
  }
}

function progressLine(progress: Record<string, unknown> | undefined): string {
  if (progress === undefined) return "";
  const { stage, current, total, unit, message } = progress;
  const words = typeof message === "string" && message !== "" ? message : typeof stage === "string" ? stage : "";
  if (typeof current !== "number") return words;
  const count = typeof total === "number" ? `${current} of ${total}` : String(current);
  return `${words} (${count}${typeof unit === "string" ? ` ${unit}` : ""})`;
}

/** Who may see a message: an icon's name and words. */
export function audience(disclosure: Disclosure | undefined, me: string): { scope: "all" | "few"; text: string } {
  if (disclosure === undefined || disclosure.kind === "room") return { scope: "all", text: "Everyone in this room" };
  if (disclosure.kind === "none") return { scope: "few", text: "Nobody but the host" };
  const others = (disclosure.participantIds ?? []).filter((id) => id !== me);
  if (disclosure.more !== undefined && disclosure.more > 0) others.push(`${disclosure.more} more`);
  if (others.length === 0) return { scope: "few", text: "Only you" };
  const names = disclosure.participantIds?.includes(me) ? ["you", ...others] : others;
  return { scope: "few", text: `Only ${names.slice(0, -1).join(", ")}${names.length > 1 ? " and " : ""}${names.at(-1)}` };
}
