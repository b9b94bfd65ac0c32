import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff, MAX_WAIT_MS, MIN_WAIT_MS } from "../src/backoff.js";
import { closeAction, knownCloseCodes } from "../src/closing.js";
import { closeCodes } from "../src/words.js";
import { bench, item } from "./harness.js";

test("waits are drawn between 300 ms and a ceiling that doubles up to 20 s", () => {
  const ceilings = [600, 1_200, 2_400, 4_800, 9_600, 19_200, 20_000, 20_000];
  for (const draw of [0, 0.25, 0.5, 0.999999]) {
    const backoff = new Backoff(ceilings.length, () => draw);
    for (const ceiling of ceilings) {
      const wait = backoff.next();
      assert.equal(wait, MIN_WAIT_MS + Math.floor(draw * (ceiling - MIN_WAIT_MS)));
      assert.ok(wait !== undefined && wait >= MIN_WAIT_MS && wait < MAX_WAIT_MS);
    }
    assert.equal(backoff.next(), undefined, "the budget is used up");
    backoff.progress();
    assert.equal(backoff.next(), MIN_WAIT_MS + Math.floor(draw * 300));
  }
});

test("the budget ends the tries; an item restores it; start begins anew", () => {
  const b = bench({ budget: 3 });
  const drop = (): void => b.feed({ type: "closed", socket: b.socket, code: 1006, reason: "" });
  b.connect();
  drop();
  b.connect();
  drop();
  b.connect();
  b.frame({ type: "events", n: 1, cursor: "k1", items: [item("e1")] });
  for (let i = 0; i < 3; i++) {
    drop();
    assert.equal(b.machine.status.phase, "waiting");
    b.connect();
    b.frame({ type: "events", n: 1, cursor: "k2", items: [item("e1")] });
  }
  drop();
  assert.equal(b.machine.status.phase, "stopped", "what is known already is no progress");
  assert.equal(b.machine.status.cause?.kind, "budget");
  b.connect();
  assert.equal(b.machine.status.phase, "replaying");
});

test("the close code decides", () => {
  const actions: Record<string, number[]> = {
    retry: [1000, 1001, 1005, 1006, 1011, 1012, 1013, 4000, 4408, 4421, 4423, 4429, 3000, 4300, 4500],
    fresh: [4420],
    stop: [1002, 1003, 1007, 1009, 4400, 4401, 4403, 4404, 4406, 4409, 4410, 4402, 4450, 4499],
  };
  for (const [action, codes] of Object.entries(actions)) {
    for (const code of codes) assert.equal(closeAction(code), action, String(code));
  }
  assert.deepEqual(knownCloseCodes().sort(), Object.values(closeCodes).sort(), "the table covers the words");
});

test("stop codes stop with the code, retry codes wait, an expired token is replaced at once", () => {
  const phases: [number, string][] = [
    [4401, "stopped"],
    [4409, "stopped"],
    [1012, "waiting"],
    [4421, "waiting"],
    [4420, "authorizing"],
  ];
  for (const [code, phase] of phases) {
    const b = bench();
    b.connect();
    b.feed({ type: "closed", socket: b.socket, code, reason: "why" });
    assert.equal(b.machine.status.phase, phase, String(code));
    if (phase !== "authorizing") assert.deepEqual(b.machine.status.cause, { code, kind: "closed", reason: "why" });
  }
});

test("a token that is refused as expired again and again is not a busy loop", () => {
  const b = bench();
  b.connect();
  b.feed({ type: "closed", socket: b.socket, code: 4420, reason: "" });
  b.feed({ type: "token", token: "t" });
  b.feed({ type: "closed", socket: b.socket, code: 4420, reason: "" });
  assert.equal(b.machine.status.phase, "waiting");
});

test("the token source may fail for now or for good", () => {
  const b = bench();
  b.feed({ type: "start" });
  b.feed({ type: "token_failed", reason: "offline", final: false });
  assert.equal(b.machine.status.phase, "waiting");
  b.feed({ type: "retry" });
  b.feed({ type: "token_failed", reason: "gone", final: true });
  assert.deepEqual(b.machine.status.cause, { code: 0, kind: "refused", reason: "gone" });
  assert.equal(b.machine.status.phase, "stopped");
});

test("stop closes and stays away", () => {
  const b = bench();
  b.connect();
  b.feed({ type: "stop" });
  assert.deepEqual(b.of("close").map((e) => e.code), [1000]);
  b.feed({ type: "retry" });
  assert.equal(b.machine.status.phase, "stopped");
});
