import assert from "node:assert/strict";
import { test } from "node:test";
import { type Clock, Connection, type Handler, RequestError, type Socket, TokenRefused } from "../src/connection.js";
import type { Input } from "../src/frames.js";
import { item, readyFrame } from "./harness.js";

class FakeSocket implements Socket {
  onopen: ((event: never) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  sent: Record<string, unknown>[] = [];
  closedWith: number | undefined;
  send(text: string): void {
    this.sent.push(JSON.parse(text) as Record<string, unknown>);
  }
  close(code: number): void {
    this.closedWith = code;
  }
  say(frame: object): void {
    this.onmessage?.({ data: JSON.stringify(frame) });
  }
}

class FakeClock implements Clock {
  time = 0;
  #timers: { at: number; run: () => void }[] = [];
  now(): number {
    return this.time;
  }
  after(ms: number, run: () => void): unknown {
    const timer = { at: this.time + ms, run };
    this.#timers.push(timer);
    return timer;
  }
  cancel(timer: unknown): void {
    this.#timers = this.#timers.filter((t) => t !== timer);
  }
  advance(ms: number): void {
    const until = this.time + ms;
    for (;;) {
      const due = this.#timers.filter((t) => t.at <= until).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.cancel(due);
      this.time = due.at;
      due.run();
    }
    this.time = until;
  }
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

function setUp(more: { token?: () => Promise<string>; handler?: Partial<Handler> } = {}) {
  const clock = new FakeClock();
  const sockets: FakeSocket[] = [];
  const log: string[] = [];
  let stored: Input[] = [];
  const handler: Handler = {
    reset: () => log.push("reset"),
    item: (it) => log.push(`item ${it.id}`),
    cursor: (cursor) => log.push(`cursor ${cursor}`),
    ...more.handler,
  };
  const connection = new Connection({
    url: "ws://room.test/v1/rooms/demo/ws",
    channels: ["public"],
    session: "s",
    cursor: "k0",
    token: more.token ?? (() => Promise.resolve("jwt")),
    handler,
    clock,
    random: () => 0,
    outbox: { load: () => stored, save: (inputs) => (stored = inputs) },
    socket: (url, protocol) => {
      assert.equal(url, "ws://room.test/v1/rooms/demo/ws");
      assert.equal(protocol, "parley.v1");
      const socket = new FakeSocket();
      sockets.push(socket);
      return socket;
    },
  });
  const last = (): FakeSocket => sockets[sockets.length - 1] as FakeSocket;
  return {
    clock,
    sockets,
    log,
    connection,
    last,
    stored: () => stored,
    async connect() {
      connection.start();
      await settled();
      last().onopen?.(undefined as never);
      last().say(readyFrame);
    },
  };
}

test("items reach the handler before their cursor, and a drop is resumed after the wait", async () => {
  const s = setUp();
  await s.connect();
  s.last().say({ type: "events", n: 1, cursor: "k2", items: [item("e1"), item("e2")] });
  assert.deepEqual(s.log, ["item e1", "item e2", "cursor k2"]);
  s.last().onclose?.({ code: 1006, reason: "" });
  assert.equal(s.connection.status.phase, "waiting");
  s.clock.advance(299);
  await settled();
  assert.equal(s.sockets.length, 1);
  s.clock.advance(1);
  await settled();
  assert.equal(s.sockets.length, 2);
  s.last().onopen?.(undefined as never);
  assert.equal(s.last().sent[0]?.["cursor"], "k2");
});

test("the outbox is stored before it is sent, and a submit from inside a handler keeps the order of effects", async () => {
  const order: string[] = [];
  const s = setUp({
    handler: {
      item: (it) => {
        order.push(it.id);
        if (it.id === "e1") s.connection.submit({ id: "i1", channel: "public", text: "x", modality: "text" });
      },
      outbox: (inputs) => {
        order.push(`outbox ${inputs.length}`);
        assert.equal(s.stored().length, inputs.length);
        if (inputs.length > 0) assert.ok(!s.last().sent.some((f) => f["type"] === "input"));
      },
    },
  });
  await s.connect();
  s.last().say({ type: "events", n: 1, cursor: "k2", items: [item("e1"), item("e2")] });
  assert.deepEqual(order, ["e1", "e2", "outbox 1"]);
  assert.equal(s.last().sent.at(-1)?.["type"], "input");
  s.last().say({ type: "accepted", id: "i1", duplicate: false });
  assert.deepEqual(s.stored(), []);
});

test("a handler that throws ends the connection and the rest of the frame is not delivered", async () => {
  const s = setUp({
    handler: {
      item: (it) => {
        s.log.push(`item ${it.id}`);
        if (it.id === "e1") throw new Error("no");
      },
    },
  });
  await s.connect();
  s.last().say({ type: "events", n: 1, cursor: "k2", items: [item("e1"), item("e2")] });
  assert.deepEqual(s.log, ["item e1"]);
  assert.equal(s.last().closedWith, 4000);
});

test("cancel is answered; without a connection it is refused", async () => {
  const s = setUp();
  await assert.rejects(s.connection.cancel("r1"), (e) => e instanceof RequestError && e.code === "disconnected");
  await s.connect();
  const answer = s.connection.cancel("r1");
  const sent = s.last().sent.at(-1);
  assert.deepEqual([sent?.["type"], sent?.["run"]], ["cancel", "r1"]);
  s.last().say({ type: "done", ref: sent?.["ref"], canceled: true, status: "canceled" });
  assert.deepEqual(await answer, { canceled: true, status: "canceled" });
});

test("a silent server is left after pingMs + 10 s and nothing more is heard of it", async () => {
  const s = setUp();
  await s.connect();
  s.clock.advance(35_000);
  assert.equal(s.last().closedWith, undefined);
  s.clock.advance(1_000);
  assert.equal(s.last().closedWith, 4408);
  assert.equal(s.last().onmessage, null);
});

test("a refused token stops, another failure is tried again with a new token", async () => {
  let tries = 0;
  const s = setUp({
    token: () => Promise.reject(++tries < 3 ? new Error("offline") : new TokenRefused("signed out")),
  });
  s.connection.start();
  await settled();
  assert.equal(s.connection.status.phase, "waiting");
  s.clock.advance(20_000);
  await settled();
  s.clock.advance(20_000);
  await settled();
  assert.equal(tries, 3);
  assert.deepEqual(s.connection.status.cause, { code: 0, kind: "refused", reason: "signed out" });
});
