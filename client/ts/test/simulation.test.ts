import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyView, foldItem, type View } from "../src/fold.js";
import type { Item } from "../src/frames.js";
import { bench, item } from "./harness.js";

/** A small generator of random numbers, so that a failure can be repeated from its seed. */
function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const LENGTH = 120;

function entry(i: number): Item {
  const body = { type: "assistant_output", outputId: `o${Math.floor(i / 10)}`, delta: `${i} `, final: i % 10 === 9 };
  return item(`e${i}`, body) as Item;
}

/**
 * A server with a journal of {@link LENGTH} entries, a client whose handler sometimes fails, a network that drops,
 * numbers that sometimes jump, and a page that is sometimes reloaded from what it stored with its cursor.
 * Returns how often something went wrong.
 */
function simulate(seed: number): number {
  const random = generator(seed);
  let stored: { cursor: string | null; view: string } = { cursor: null, view: JSON.stringify(emptyView()) };
  let lives = 0;
  let failures = 0;
  for (let done = false; !done; ) {
    assert.ok(++lives < 500, `seed ${seed}: no end`);
    const view = JSON.parse(stored.view) as View;
    const b = bench({ cursor: stored.cursor, random, budget: 10_000 });
    const store = (): void => {
      // The view may be ahead of the cursor by a part of a frame; its own memory of ids makes up for it.
      if (b.machine.cursor !== null) stored = { cursor: b.machine.cursor, view: JSON.stringify(view) };
      b.clear();
    };
    // The harness asks `failing` right before it counts an item as handled, which makes it the handler here.
    b.failing = (id) => {
      if (id === "state") return false;
      if (random() < 0.05) {
        failures++;
        return true;
      }
      foldItem(view, entry(Number(id.slice(1))));
      return false;
    };
    let fresh = stored.cursor === null;
    for (let up = true; up && !done; ) {
      b.connect({ resumed: !fresh, cursor: b.machine.cursor ?? "0" });
      if (fresh) b.frame({ type: "state", part: 1, parts: 1, room: { agents: [] }, runs: [] });
      fresh = false;
      let at = Number(b.machine.cursor ?? 0);
      for (let n = 1; b.machine.status.phase === "replaying" && !done; ) {
        store();
        const size = 1 + Math.floor(random() * 6);
        const items = Array.from({ length: Math.min(size, LENGTH - at) }, (_, k) => entry(at + k));
        const jump = random() < 0.05 ? 1 : 0;
        failures += jump;
        b.frame({ type: "events", n: n + jump, cursor: String(at + items.length), items });
        n += items.length;
        at += items.length;
        store();
        if (random() < 0.1) b.feed({ type: "closed", socket: b.socket, code: 1006, reason: "" });
        done = stored.cursor === String(LENGTH);
      }
      up = random() < 0.7; // Else the page is reloaded.
    }
    if (done) {
      const text = (view.messages["public"] ?? []).map((message) => message.text).join("");
      assert.equal(text, Array.from({ length: LENGTH }, (_, i) => `${i} `).join(""), `seed ${seed}`);
      assert.ok((view.messages["public"] ?? []).every((message) => message.status === "closed"), `seed ${seed}`);
    }
  }
  return failures;
}

test("through drops, gaps, failing handlers and reloads every entry counts once, in order", () => {
  const start = Number(process.env["PARLEY_SEED"] ?? Date.now() % 1_000_000);
  console.log(`seed ${start}`);
  let failures = 0;
  for (let seed = start; seed < start + 200; seed++) failures += simulate(seed);
  // A single short simulation may be lucky; two hundred are not.
  assert.ok(failures > 200, `seed ${start}: only ${failures} things went wrong in 200 simulations`);
});
