import assert from "node:assert/strict";
import { test } from "node:test";
import { AfterTerminalError, GapError } from "../src/machine.js";
import { FrameError } from "../src/check.js";
import { bench, item } from "./harness.js";

test("hello carries the stored cursor, the session and a fresh token; ready leads to replay and then to live", () => {
  const b = bench({ from: "start" });
  b.feed({ type: "start" });
  assert.deepEqual(b.of("fetch_token").map((e) => e.purpose), ["connect"]);
  assert.equal(b.of("open").length, 0, "no socket before the token");
  b.feed({ type: "token", token: "t1" });
  b.feed({ type: "opened", socket: b.socket });
  assert.deepEqual(b.sent(), [
    {
      type: "hello",
      token: "t1",
      session: "0123456789abcdef0123456789abcdef",
      cursor: "k0",
      from: "start",
      channels: ["public"],
      maxFrame: 32_768,
    },
  ]);
  b.frame({ type: "ready", conn: "c", sub: "me", resumed: true, cursor: "k0", can: {}, expiresIn: 9, pingMs: 9, maxFrame: 9, window: 9 });
  assert.equal(b.machine.status.phase, "replaying");
  b.frame({ type: "caught_up", cursor: "k1" });
  assert.equal(b.machine.status.phase, "live");
  assert.equal(b.machine.cursor, "k1");
});

test("the cursor moves after the last item of a frame was handled, never before", () => {
  const b = bench();
  b.connect();
  b.failing = (id) => id === "e2";
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1"), item("e2"), item("e3")] });
  assert.deepEqual(b.delivered, ["e1"]);
  assert.equal(b.machine.cursor, "k0");
  assert.deepEqual(b.of("close").map((e) => e.code), [4000]);
  assert.equal(b.machine.status.phase, "waiting");

  b.failing = () => false;
  b.clear();
  b.connect();
  assert.equal(b.sent()[0]?.["cursor"], "k0");
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1"), item("e2"), item("e3")] });
  assert.deepEqual(b.delivered, ["e1", "e2", "e3"], "what was handled is not delivered again, the rest is");
  assert.equal(b.machine.cursor, "k1");
});

test("a jump in the numbers is an error: close 4000 and resume from the cursor", () => {
  for (const n of [3, 1, 7]) {
    const b = bench();
    b.connect();
    b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1")] });
    b.clear();
    b.frame({ type: "events", n, cursor: "k9", items: [item("e9")] });
    assert.ok(b.of("fault")[0]?.error instanceof GapError, `n ${n}`);
    assert.deepEqual(b.of("close").map((e) => e.code), [4000]);
    assert.equal(b.machine.cursor, "k1");
    assert.deepEqual(b.delivered, ["e1"]);
    b.connect();
    assert.equal(b.sent().find((frame) => frame["type"] === "hello")?.["cursor"], "k1");
  }
});

test("known entry ids are counted but not delivered", () => {
  const b = bench();
  b.connect();
  b.frame({ type: "events", n: 1, cursor: "k2", items: [item("e1"), item("e2")] });
  b.frame({ type: "events", n: 3, cursor: "k3", items: [item("e2"), item("e3"), item("e3")] });
  b.frame({ type: "events", n: 6, cursor: "k4", items: [item("e1")] });
  assert.deepEqual(b.delivered, ["e1", "e2", "e3"]);
  assert.equal(b.machine.cursor, "k4");
});

test("malformed frames are typed errors and the cursor stays", () => {
  const frames: [string, string][] = [
    ["{", ""],
    ["[]", ""],
    ['{"n":1}', "type"],
    ['{"type":"events","n":0,"cursor":"k","items":[]}', "n"],
    ['{"type":"events","n":1,"items":[]}', "cursor"],
    ['{"type":"events","n":1,"cursor":"k","items":{}}', "items"],
    ['{"type":"events","n":1,"cursor":"k","items":[{"id":"e","at":"t","kind":"room"}]}', "items[0].body"],
    ['{"type":"events","n":1,"cursor":"k","items":[{"id":7,"at":"t","kind":"room","body":{}}]}', "items[0].id"],
    ['{"type":"caught_up"}', "cursor"],
    ['{"type":"ping","cursor":3,"t":1}', "cursor"],
  ];
  for (const [text, path] of frames) {
    const b = bench();
    b.connect();
    b.clear();
    b.feed({ type: "frame", socket: b.socket, text });
    const error = b.of("fault")[0]?.error;
    assert.ok(error instanceof FrameError, text);
    assert.equal(error.path, path, text);
    assert.equal(b.machine.cursor, "k0");
    assert.equal(b.machine.status.phase, "waiting");
  }
});

test("unknown frame types, members and item kinds pass", () => {
  const b = bench();
  b.connect();
  b.frame({ type: "sparkle", a: 1 });
  b.frame({ type: "caught_up", cursor: "k1", more: true });
  b.frame({ type: "events", n: 1, cursor: "k2", items: [item("e1", { x: 1 }, { kind: "new.kind" })] });
  assert.deepEqual(b.delivered, ["e1"]);
  assert.deepEqual(b.of("other").map((e) => e.frame.name), ["sparkle"]);
  assert.equal(b.of("fault").length, 0);
});

test("a validator that throws keeps the cursor and delivers nothing of the frame", () => {
  const b = bench({
    validate: (it) => {
      if (it.body["stage"] === "bad") throw new TypeError("stage");
      return { ...it, body: { ...it.body, checked: true } };
    },
  });
  b.connect();
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1", { type: "progress", stage: "good" })] });
  assert.equal(b.of("deliver")[0]?.item.body["checked"], true);
  b.frame({ type: "events", n: 2, cursor: "k3", items: [item("e2"), item("e3", { type: "progress", stage: "bad" })] });
  assert.deepEqual(b.delivered, ["e1"]);
  assert.equal(b.machine.cursor, "k1");
  assert.ok(b.of("fault")[0]?.error instanceof TypeError);
});

test("each terminal ends its run: what follows is an error and changes nothing", () => {
  for (const type of ["completed", "run_canceled", "deadline_exceeded", "run_failed"]) {
    const b = bench();
    b.connect();
    b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1", { type })] });
    b.frame({ type: "events", n: 2, cursor: "k3", items: [item("e2"), item("e3", {}, { kind: "room" })] });
    assert.deepEqual(b.delivered, ["e1", "e3"], type);
    assert.ok(b.of("fault")[0]?.error instanceof AfterTerminalError);
    assert.equal(b.machine.cursor, "k3");
    assert.equal(b.machine.status.phase, "replaying", "the connection goes on");
  }
});

test("a stream that is not resumed begins with its state, in parts, and the cursor waits for it", () => {
  const b = bench({ from: "start" });
  b.connect({ resumed: false, reason: "cursor_expired", cursor: "k5" });
  b.frame({ type: "state", part: 1, parts: 3, room: { phase: "p", agents: [{ id: "guide" }] }, runs: [] });
  assert.equal(b.of("reset").length, 0);
  assert.equal(b.machine.cursor, "k0");
  const run = { run: "r1", channel: "public", agent: "guide", status: "active", attempt: 1 };
  const output = { outputId: "o1", purpose: "answer" };
  b.frame({ type: "state", part: 2, parts: 3, runs: [{ ...run, outputs: [{ ...output, text: "so " }] }] });
  assert.equal(b.of("reset").length, 0);
  const more = [{ ...output, text: "far", final: true }, { outputId: "o2", purpose: "question", text: "?" }];
  b.frame({ type: "state", part: 3, parts: 3, room: { agents: [{ id: "host" }] }, runs: [{ ...run, outputs: more }] });
  const reset = b.of("reset")[0];
  assert.equal(reset?.reason, "cursor_expired");
  assert.deepEqual(reset?.state.room, { phase: "p", agents: [{ id: "guide" }, { id: "host" }] });
  assert.deepEqual(
    reset?.state.runs.map((r) => r.outputs.map((o) => `${r.run} ${o.outputId} ${o.text} ${o.final}`)),
    [["r1 o1 so far true", "r1 o2 ? false"]],
  );
  assert.equal(b.machine.cursor, "k5");
});

test("events or caught_up before the state, a part out of turn, a state after a resume: faults", () => {
  const state = { type: "state", part: 1, parts: 1, room: {}, runs: [] };
  const cases: [object, object][] = [
    [{ resumed: false }, { type: "events", n: 1, cursor: "k", items: [item("e1")] }],
    [{ resumed: false }, { type: "caught_up", cursor: "k" }],
    [{ resumed: false }, { ...state, part: 2, parts: 2 }],
    [{ resumed: true }, state],
    [{ resumed: true }, { type: "ready", conn: "c", sub: "s", resumed: true, cursor: "k", can: {}, expiresIn: 1, pingMs: 1, maxFrame: 1, window: 1 }],
  ];
  for (const [ready, frame] of cases) {
    const b = bench();
    b.connect(ready);
    b.frame(frame);
    assert.ok(b.of("fault")[0]?.error instanceof FrameError, JSON.stringify(frame));
    assert.equal(b.machine.cursor, "k0");
    assert.deepEqual(b.delivered, []);
  }
});

test("after a reset, ids and ended runs of the stream before it count for nothing", () => {
  const b = bench();
  b.connect();
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1", { type: "completed" })] });
  b.feed({ type: "closed", socket: b.socket, code: 1006, reason: "" });
  b.connect({ resumed: false, reason: "incarnation_changed", cursor: "k7" });
  b.frame({ type: "state", part: 1, parts: 1, room: {}, runs: [] });
  b.frame({ type: "events", n: 1, cursor: "k8", items: [item("e1", { type: "completed" })] });
  assert.deepEqual(b.delivered, ["e1", "state", "e1"]);
});

test("ack: at once after a pause, then each second or each 64 items", () => {
  const b = bench();
  b.connect();
  b.sent();
  const acks = (): unknown[] => b.sent().filter((f) => f["type"] === "ack").map((f) => f["n"]);
  b.now += 5_000;
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("a1")] });
  assert.deepEqual(acks(), [1]);
  b.now += 10;
  b.frame({ type: "events", n: 2, cursor: "k2", items: [item("a2")] });
  assert.deepEqual(acks(), []);
  b.now += 990;
  b.feed({ type: "tick" });
  assert.deepEqual(acks(), [2]);
  b.now += 1_000;
  b.feed({ type: "tick" });
  assert.deepEqual(acks(), [], "nothing new, nothing to say");
  b.now -= 500;
  const items = Array.from({ length: 64 }, (_, i) => item(`b${i}`));
  b.frame({ type: "events", n: 3, cursor: "k3", items });
  assert.deepEqual(acks(), [66]);
  b.feed({ type: "hidden", hidden: true });
  b.frame({ type: "events", n: 67, cursor: "k4", items: [item("c")] });
  assert.deepEqual(acks(), [67], "a hidden page has no reliable ticks");
});

test("ping is answered with its t and carries a cursor", () => {
  const b = bench();
  b.connect();
  b.sent();
  b.frame({ type: "ping", cursor: "k1", t: 17 });
  assert.deepEqual(b.sent(), [{ type: "pong", t: 17 }]);
  assert.equal(b.machine.cursor, "k1");
});

test("silence for longer than pingMs + 10 s is death; so is a greeting that does not come", () => {
  const b = bench();
  b.connect({ pingMs: 20_000 });
  b.now += 30_000;
  b.feed({ type: "tick" });
  assert.equal(b.machine.status.phase, "replaying");
  b.now += 1;
  b.feed({ type: "tick" });
  assert.deepEqual(b.of("close").map((e) => e.code), [4408]);
  assert.equal(b.machine.status.phase, "waiting");
  b.clear();
  b.feed({ type: "frame", socket: b.socket, text: "{}" });
  b.feed({ type: "closed", socket: b.socket, code: 4401, reason: "" });
  assert.deepEqual(b.effects, [], "nothing more is heard of the dead socket");

  b.feed({ type: "retry" });
  b.feed({ type: "token", token: "t" });
  b.now += 15_001;
  b.feed({ type: "tick" });
  assert.equal(b.machine.status.phase, "waiting");
});

test("a token is refreshed before it expires, on the open connection", () => {
  const b = bench();
  b.connect({ expiresIn: 100, pingMs: 200_000 });
  b.now += 79_999;
  b.clear();
  b.feed({ type: "tick" });
  assert.deepEqual(b.of("fetch_token"), []);
  b.now += 1;
  b.feed({ type: "tick" });
  b.feed({ type: "tick" });
  assert.deepEqual(b.of("fetch_token").map((e) => e.purpose), ["refresh"]);
  b.sent();
  b.feed({ type: "token", token: "t2" });
  const auth = b.sent()[0];
  assert.equal(auth?.["type"], "auth");
  assert.equal(auth?.["token"], "t2");
  b.frame({ type: "done", ref: auth?.["ref"], expiresIn: 100, can: { public: ["read"] } });
  assert.deepEqual(b.machine.status.can, { public: ["read"] });
});

test("requests are answered, refused, or lost with the connection, and never sent twice", () => {
  const b = bench();
  b.feed({ type: "request", ref: "q0", frame: { type: "cancel", run: "r1" } });
  b.connect();
  b.sent();
  for (const ref of ["q1", "q2", "q3"]) b.feed({ type: "request", ref, frame: { type: "cancel", run: "r1" } });
  assert.deepEqual(b.sent().map((f) => f["ref"]), ["q1", "q2", "q3"]);
  b.frame({ type: "done", ref: "q1", canceled: true, status: "canceled" });
  b.frame({ type: "error", ref: "q2", code: "not_found", message: "m", fatal: false });
  b.feed({ type: "closed", socket: b.socket, code: 1006, reason: "" });
  assert.deepEqual(b.of("done").map((e) => [e.ref, e.frame["canceled"]]), [["q1", true]]);
  assert.deepEqual(b.of("request_failed").map((e) => [e.ref, e.code]), [
    ["q0", "disconnected"],
    ["q2", "not_found"],
    ["q3", "disconnected"],
  ]);
  b.connect();
  assert.ok(!b.sent().some((f) => f["type"] === "cancel"));
});
