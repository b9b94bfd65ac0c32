import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { parseServerFrame } from "../src/check.js";
import { emptyView, foldItem, foldState } from "../src/fold.js";
import type { Input } from "../src/frames.js";
import { bench } from "./harness.js";

/** The frames that the Go tests write and read; the compiled test stands in client/ts/.build/test. */
const folder = join(dirname(fileURLToPath(import.meta.url)), "../../../../gateway/wire/testdata/golden");
const frames = new Map<string, Record<string, unknown>>(
  readdirSync(folder)
    .filter((name) => name.endsWith(".json"))
    .map((name) => [name.slice(0, -".json".length), JSON.parse(readFileSync(join(folder, name), "utf8")) as Record<string, unknown>]),
);
const golden = (name: string): Record<string, unknown> => {
  const frame = frames.get(name);
  assert.ok(frame !== undefined, `no golden frame ${name}`);
  return frame;
};

test("every frame of the server is read as what it is", () => {
  let count = 0;
  for (const [name, frame] of frames) {
    if (!name.startsWith("server_")) continue;
    count++;
    const read = parseServerFrame(JSON.stringify(frame));
    assert.equal(read.type, frame["type"], name);
    if (read.type !== "state") assert.deepEqual(JSON.parse(JSON.stringify(read)), { ...JSON.parse(JSON.stringify(read)), ...frame }, name);
  }
  assert.ok(count > 20, `only ${count} frames`);
});

test("the golden states and conversations fold", () => {
  for (const who of ["speaker", "other", "host"]) {
    const state = parseServerFrame(JSON.stringify(golden(`server_state_${who}`)));
    assert.ok(state.type === "state");
    const view = foldState(state, "visitor-7");
    assert.equal(view.phase, "lobby");
    assert.equal(view.runs["r_F9"]?.status, "waiting_for_input");
    const [question] = view.messages["public"] ?? [];
    assert.equal(`${question?.status} ${question?.purpose} ${question?.text}`, "closed question Which <one>?");
    assert.equal(view.runs["r_F9"]?.askedBy, who === "other" ? undefined : "visitor-7");
  }
  for (const who of ["speaker", "other", "third", "host"]) {
    const events = parseServerFrame(JSON.stringify(golden(`server_events_${who}`)));
    assert.ok(events.type === "events");
    const view = emptyView();
    for (const item of events.items) foldItem(view, item);
    const [asked] = view.messages["public"] ?? [];
    assert.equal(asked?.text, "Where is the tower & who built it?");
    assert.equal(asked?.inputId, who === "speaker" || who === "host" ? "i1" : undefined);
    assert.equal(view.runs["r_F9"]?.agent, "guide");
    assert.deepEqual(view.agents.map((agent) => agent.id)[0], "guide");
  }
});

test("what the machine sends has the members and kinds of value of the golden frames", () => {
  const b = bench({ render: ["captions"], client: "test/1", from: "start" });
  b.connect();
  const input: Input = {
    id: "i1",
    channel: "public",
    text: "x",
    modality: "text",
    lang: "en",
    agents: ["guide"],
    disclosure: { kind: "participants", participantIds: ["visitor-7"] },
    onBusy: "supersede",
    deadlineMs: 1,
    endedAt: "2026-11-30T21:00:00Z",
    continuation: { run: "r", token: "t" },
  };
  b.feed({ type: "submit", input });
  b.feed({ type: "request", ref: "c1", frame: { type: "cancel", run: "r_F9" } });
  b.frame(golden("server_ping"));
  b.frame({ ...golden("server_events_speaker"), n: 1 });
  b.now += 2_000;
  b.feed({ type: "tick" });
  b.feed({ type: "token", token: "t2" });
  const models: Record<string, string> = {
    hello: "client_hello",
    input: "client_input_full",
    cancel: "client_cancel",
    pong: "client_pong",
    ack: "client_ack",
    auth: "client_auth",
  };
  const sent = b.sent();
  for (const [type, name] of Object.entries(models)) {
    const frame = sent.find((frame) => frame["type"] === type);
    assert.ok(frame !== undefined, `no ${type} was sent`);
    for (const [member, value] of Object.entries(frame)) {
      const model = golden(name)[member];
      assert.ok(model !== undefined, `${type}: member ${member} is unknown to the server`);
      if (model !== null) assert.ok(value === null || typeof value === typeof model, `${type}.${member}`);
    }
  }
});
