import assert from "node:assert/strict";
import { test } from "node:test";
import type { Input } from "../src/frames.js";
import { newInputId, newSessionId } from "../src/ids.js";
import { OUTBOX_LIMIT } from "../src/outbox.js";
import { bench } from "./harness.js";

const input = (id: string): Input => ({ id, channel: "public", text: `text ${id}`, modality: "text" });

test("inputs made before ready are sent after it, in order, and again on each connection until accepted", () => {
  const b = bench({ outbox: [input("i0")] });
  b.feed({ type: "submit", input: input("i1") });
  assert.deepEqual(b.sent(), []);
  const inputs = (): unknown[] => b.sent().filter((f) => f["type"] === "input").map((f) => f["id"]);
  b.connect();
  assert.deepEqual(inputs(), ["i0", "i1"]);
  b.feed({ type: "submit", input: input("i2") });
  assert.deepEqual(inputs(), ["i2"]);
  b.frame({ type: "accepted", id: "i0", entry: "e", run: "r", at: "t", state: "started", duplicate: false });
  b.feed({ type: "closed", socket: b.socket, code: 1006, reason: "" });
  b.connect();
  assert.deepEqual(inputs(), ["i1", "i2"]);
  b.frame({ type: "accepted", id: "i1", duplicate: true });
  b.frame({ type: "accepted", id: "i2", duplicate: false });
  assert.deepEqual(b.machine.outbox, []);
  assert.deepEqual(b.of("accepted").map((e) => e.frame.duplicate), [false, true, false]);
  assert.deepEqual(b.of("outbox").map((e) => e.inputs.map((i) => i.id)), [
    ["i0", "i1"],
    ["i0", "i1", "i2"],
    ["i1", "i2"],
    ["i2"],
    [],
  ]);
});

test("the same input twice is one", () => {
  const b = bench();
  b.connect();
  b.sent();
  b.feed({ type: "submit", input: input("i1") });
  b.feed({ type: "submit", input: input("i1") });
  assert.equal(b.sent().length, 1);
});

test("one more than the limit: the oldest is refused to its owner, the rest stays", () => {
  const b = bench();
  for (let i = 0; i <= OUTBOX_LIMIT; i++) b.feed({ type: "submit", input: input(`i${i}`) });
  assert.deepEqual(b.of("refused").map((e) => [e.id, e.code]), [["i0", "outbox_full"]]);
  assert.equal(b.machine.outbox.length, OUTBOX_LIMIT);
  assert.equal(b.machine.outbox[0]?.id, "i1");
});

test("a refusal for good removes the input; rate_limited and unavailable keep it and hold what comes after", () => {
  for (const code of ["rate_limited", "unavailable"]) {
    const b = bench();
    b.connect();
    b.feed({ type: "submit", input: input("i1") });
    b.feed({ type: "submit", input: input("i2") });
    b.sent();
    b.frame({ type: "error", ref: "i1", code, message: "m", retryMs: 800, fatal: false });
    b.frame({ type: "error", ref: "i2", code: "blank_text", message: "m", fatal: false });
    b.feed({ type: "submit", input: input("i3") });
    assert.deepEqual(b.sent(), []);
    assert.deepEqual(b.of("deferred").map((e) => [e.id, e.code]), [["i1", code]]);
    assert.deepEqual(b.of("refused").map((e) => [e.id, e.code]), [["i2", "blank_text"]]);
    b.now += 799;
    b.feed({ type: "tick" });
    assert.deepEqual(b.sent(), []);
    b.now += 1;
    b.feed({ type: "tick" });
    assert.deepEqual(b.sent().map((f) => f["id"]), ["i1", "i3"]);
  }
});

test("a server that keeps deferring is asked less often", () => {
  const b = bench();
  b.connect();
  b.feed({ type: "submit", input: input("i1") });
  const waits: number[] = [];
  for (let i = 0; i < 10; i++) {
    b.sent();
    b.frame({ type: "error", ref: "i1", code: "unavailable", message: "", retryMs: 500, fatal: false });
    const from = b.now;
    while (b.sent().every((f) => f["type"] !== "input")) {
      b.now += 100;
      b.frame({ type: "ping", t: 0 });
      b.feed({ type: "tick" });
    }
    waits.push(b.now - from);
  }
  assert.deepEqual(waits, [500, 600, 1_200, 2_400, 4_800, 9_600, 19_200, 20_000, 20_000, 20_000]);
});

test("ids have their length and form", () => {
  assert.match(newSessionId(), /^[0-9a-f]{32}$/);
  const id = newInputId(0x0192f0c20000, (bytes) => bytes.fill(0xff));
  assert.equal(id, "0192f0c2-0000-7fff-bfff-ffffffffffff");
});
