import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyView, foldItem, foldState, openRun, type View } from "../src/fold.js";
import type { Item } from "../src/frames.js";

let next = 0;
function make(kind: string, body: object, more: Partial<Item> = {}): Item {
  return {
    id: `e${++next}`,
    at: "2026-11-30T21:00:00Z",
    channel: "public",
    kind,
    body: body as Record<string, unknown>,
    ...more,
  };
}
const ask = (text: string, run: string, more: Partial<Item> = {}): Item =>
  make("input", { speaker: { kind: "participant", id: "visitor-7" }, text, modality: "text", agent: "guide", state: "started" }, { run, ...more });
const event = (type: string, body: object = {}, more: Partial<Item> = {}): Item =>
  make("run.event", { type, ...body }, { run: "r1", agent: "guide", attempt: 1, ...more });
const delta = (outputId: string, text: string, more: object = {}, item: Partial<Item> = {}): Item =>
  event("assistant_output", { outputId, delta: text, purpose: "answer", ...more }, item);

function fold(items: Item[], view: View = emptyView()): View {
  for (const item of items) foldItem(view, item);
  return view;
}
const shown = (view: View, channel = "public"): string[] =>
  (view.messages[channel] ?? []).map((m) => `${m.speaker.id} ${m.status}: ${m.text}`);

test("deltas of one output are one message; each item counts once", () => {
  const items = [ask("Hello?", "r1"), event("attempt_started"), delta("o1", "I "), delta("o1", "see.", { final: true }), event("completed")];
  const view = fold([...items, ...items, items[2] as Item]);
  assert.deepEqual(shown(view), ["visitor-7 closed: Hello?", "guide closed: I see."]);
  assert.equal(view.runs["r1"]?.status, "completed");
  assert.equal(view.runs["r1"]?.askedBy, "visitor-7");
  assert.equal(openRun(view, "public"), undefined);
});

test("a new attempt drops the text of open outputs and keeps closed ones", () => {
  const view = fold([
    ask("Q", "r1"),
    event("attempt_started"),
    delta("o1", "whole", { final: true }),
    delta("o2", "half"),
    event("attempt_started", { attempt: 2, resumed: true }, { attempt: 2 }),
    delta("o3", "anew", {}, { attempt: 2 }),
    delta("o2", " late"),
  ]);
  assert.deepEqual(shown(view).slice(1), ["guide closed: whole", "guide abandoned: ", "guide open: anew"]);
  assert.equal(view.runs["r1"]?.attempt, 2);
});

test("terminals: what is open at a cancel, deadline or failure is interrupted and keeps its text", () => {
  const ends: [string, object, string][] = [
    ["run_canceled", { reason: "superseded_by_new_input" }, "canceled"],
    ["deadline_exceeded", {}, "deadline_exceeded"],
    ["run_failed", { code: "run_processing_failed", message: "It failed." }, "failed"],
  ];
  for (const [type, body, status] of ends) {
    const view = fold([ask("Q", "r1"), delta("o1", "half"), event(type, body), delta("o1", " more")]);
    assert.deepEqual(shown(view).slice(1), ["guide interrupted: half"]);
    const run = view.runs["r1"];
    assert.equal(run?.status, status);
    assert.deepEqual({ ...run }, { ...run, ...body });
  }
});

test("progress stands while the run is active; a question makes it wait; the next attempt makes it active", () => {
  const view = fold([ask("Q", "r1"), event("progress", { stage: "search", current: 1, total: 3 })]);
  assert.deepEqual(view.runs["r1"]?.progress, { stage: "search", current: 1, total: 3 });
  fold([delta("o1", "Which?", { purpose: "question", final: true }), event("input_requested", { requestId: "q" })], view);
  assert.equal(view.runs["r1"]?.status, "waiting_for_input");
  assert.equal(view.runs["r1"]?.progress, undefined);
  assert.equal(openRun(view, "public")?.id, "r1");
  fold([event("attempt_started", { attempt: 2, resumed: false }, { attempt: 2 })], view);
  assert.equal(view.runs["r1"]?.status, "active");
});

test("channels are apart; audience, input id and queued state are kept", () => {
  const disclosure = { kind: "participants" as const, participantIds: ["visitor-7"] };
  const asked = ask("A", "r1", { channel: "private:visitor-7", disclosure });
  asked.body["inputId"] = "i1";
  const queued = make("input", { speaker: { kind: "participant", id: "v2" }, text: "B", state: "queued" }, { run: "r2" });
  const view = fold([asked, queued]);
  assert.deepEqual(shown(view, "private:visitor-7"), ["visitor-7 closed: A"]);
  assert.deepEqual(view.messages["private:visitor-7"]?.[0]?.disclosure, disclosure);
  assert.equal(view.messages["private:visitor-7"]?.[0]?.inputId, "i1");
  assert.equal(view.runs["r2"]?.status, "queued");
  assert.deepEqual(shown(view), ["v2 closed: B"]);
});

test("a state begins the view: agents, phase, and open outputs with their text so far", () => {
  const view = foldState({
    type: "state",
    part: 1,
    parts: 1,
    room: { phase: "play", agents: [{ id: "guide", label: "Guide" }] },
    captions: [],
    runs: [
      {
        run: "r1",
        channel: "public",
        agent: "guide",
        status: "active",
        attempt: 1,
        inputId: "i1",
        disclosure: { kind: "participants", participantIds: ["visitor-7"] },
        outputs: [
          { outputId: "o0", purpose: "answer", text: "Wait.", final: true },
          { outputId: "o1", purpose: "answer", text: "I fou", final: false },
        ],
        approvals: [],
      },
    ],
  }, "visitor-7");
  fold([delta("o1", "nd it.", { final: true }), make("room", { phase: "end", agents: [{ id: "host" }] })], view);
  assert.deepEqual(shown(view), ["guide closed: Wait.", "guide closed: I found it."]);
  assert.equal(view.runs["r1"]?.askedBy, "visitor-7");
  assert.deepEqual(view.messages["public"]?.[1]?.disclosure?.participantIds, ["visitor-7"]);
  assert.equal(view.phase, "end");
  assert.deepEqual(view.agents, [{ id: "host" }]);
});

test("a view taken up from storage at any point ends as the one that was never put down", () => {
  const items = [ask("Q", "r1"), event("attempt_started"), delta("o1", "a"), delta("o1", "b"), event("attempt_started", {}, { attempt: 2 }), delta("o2", "c", { final: true }), event("completed")];
  const whole = fold(items);
  for (let cut = 0; cut <= items.length; cut++) {
    const stored = JSON.parse(JSON.stringify(fold(items.slice(0, cut)))) as View;
    assert.deepEqual(fold(items.slice(cut), stored), whole, `cut at ${cut}`);
  }
});

test("unknown kinds and types change nothing", () => {
  const view = fold([ask("Q", "r1")]);
  const before = shown(view);
  fold([make("caption", {}), make("new.kind", {}), event("step_delta", {})], view);
  assert.deepEqual(shown(view), before);
});
