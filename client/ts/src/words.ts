/**
 * The words of the wire protocol `parley.v1`: one table each, in the order of the protocol's description.
 * The same tables stand in Go under gateway/wire; a test there compares the two. Keep this file a plain list:
 * string and number literals only, nothing computed.
 */

/** The WebSocket subprotocol that client and server must agree on. */
export const SUBPROTOCOL = "parley.v1";

/** Types of the frames that a client sends. */
export const clientFrameTypes = [
  "hello",
  "auth",
  "subscribe",
  "input",
  "focus",
  "cancel",
  "interrupt",
  "activity",
  "speech.report",
  "cue.ack",
  "approve",
  "vote.cast",
  "ack",
  "pong",
  "cue.issue",
  "room.set",
  "revision",
  "interaction.send",
  "action.result",
] as const;

/** Type of a frame that a client sends. */
export type ClientFrameType = (typeof clientFrameTypes)[number];

/** Types of the frames that a server sends. */
export const serverFrameTypes = [
  "ready",
  "state",
  "subscribed",
  "events",
  "caught_up",
  "accepted",
  "done",
  "live",
  "speech.start",
  "speech.segment",
  "speech.stop",
  "cue",
  "error",
  "ping",
  "goaway",
  "action.proposed",
] as const;

/** Type of a frame that a server sends. */
export type ServerFrameType = (typeof serverFrameTypes)[number];

/** Kinds of the items that an `events` frame carries. */
export const itemKinds = [
  "input",
  "run.event",
  "caption",
  "speech.settled",
  "interaction",
  "interaction.limited",
  "vote",
  "room",
] as const;

/** Kind of an item of an `events` frame. */
export type ItemKind = (typeof itemKinds)[number];

/** Types of run events, the hidden ones (host scope) included. */
export const runEventTypes = [
  "progress",
  "assistant_output",
  "checkpoint",
  "input_requested",
  "decision",
  "completed",
  "attempt_started",
  "run_canceled",
  "deadline_exceeded",
  "run_failed",
  "run_blocked",
  "step_started",
  "step_attempt_started",
  "step_delta",
  "step_attempt_failed",
  "step_completed",
  "approval_requested",
  "approval_resolved",
] as const;

/** Type of a run event. */
export type RunEventType = (typeof runEventTypes)[number];

/** The run events that end a run. Exactly one of them closes each run, and nothing of that run follows it. */
export const terminalEventTypes = ["completed", "run_canceled", "deadline_exceeded", "run_failed"] as const;

/** Type of a run event that ends its run. */
export type TerminalEventType = (typeof terminalEventTypes)[number];

/** Statuses of a run. */
export const runStatuses = [
  "queued",
  "active",
  "waiting_for_input",
  "completed",
  "canceled",
  "deadline_exceeded",
  "failed",
] as const;

/** Status of a run. */
export type RunStatus = (typeof runStatuses)[number];

/** What `accepted` and an `input` item say became of an input. */
export const inputStates = ["started", "continued", "merged", "queued"] as const;

/** What became of an input. */
export type InputState = (typeof inputStates)[number];

/** How an input was made. */
export const modalities = ["speech", "text"] as const;

/** How an input was made. */
export type Modality = (typeof modalities)[number];

/** What an input asks for when its channel has an open run. */
export const busyPolicies = ["supersede", "append", "queue", "reject"] as const;

/** What an input asks for when its channel has an open run. */
export type BusyPolicy = (typeof busyPolicies)[number];

/** Purposes of an agent's output. */
export const purposes = ["answer", "question", "progress"] as const;

/** Purpose of an agent's output. */
export type Purpose = (typeof purposes)[number];

/** Kinds of disclosure, narrowest first. */
export const disclosureKinds = ["none", "participants", "room"] as const;

/** Kind of a disclosure. */
export type DisclosureKind = (typeof disclosureKinds)[number];

/** Why a cursor was not resumed. */
export const resetReasons = ["cursor_invalid", "cursor_expired", "incarnation_changed", "channels_changed"] as const;

/** Why a cursor was not resumed. */
export type ResetReason = (typeof resetReasons)[number];

/** Codes of `error` frames and of HTTP problems. */
export const errorCodes = [
  "bad_request",
  "unknown_type",
  "invalid_text",
  "blank_text",
  "text_too_long",
  "forbidden",
  "channel_forbidden",
  "disclosure_required",
  "disclosure_empty",
  "no_agent",
  "agent_unknown",
  "input_conflict",
  "run_conflict",
  "queue_full",
  "not_waiting",
  "already_resolved",
  "continuation_mismatch",
  "supersession_invalid",
  "protected_speech",
  "not_found",
  "rate_limited",
  "unavailable",
  "room_failed",
  "internal",
  "cursor_invalid",
  "cursor_expired",
  "cursor_ahead",
] as const;

/** Code of an `error` frame. */
export type ErrorCode = (typeof errorCodes)[number];

/** Close codes of a connection. */
export const closeCodes = {
  normal: 1000,
  protocol_error: 1002,
  unsupported_data: 1003,
  invalid_utf8: 1007,
  frame_too_large: 1009,
  internal: 1011,
  restarting: 1012,
  overloaded: 1013,
  gap: 4000,
  bad_request: 4400,
  unauthenticated: 4401,
  forbidden: 4403,
  room_not_found: 4404,
  version_unsupported: 4406,
  hello_timeout: 4408,
  replaced: 4409,
  room_closed: 4410,
  token_expired: 4420,
  slow_consumer: 4421,
  moved: 4423,
  rate_limited: 4429,
} as const;

/** Name of a close code. */
export type CloseName = keyof typeof closeCodes;
