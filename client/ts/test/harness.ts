/** A machine under test, with the shell's part played in the open: no socket, no timer, a clock that is set by hand. */

import type { Effect, MachineEvent, MachineOptions } from "../src/effects.js";
import { Machine } from "../src/machine.js";

type WithoutNow<T> = T extends unknown ? Omit<T, "now"> : never;

export interface Bench {
  machine: Machine;
  /** Everything the machine asked for since the last `take`. */
  effects: Effect[];
  /** Texts of delivered items, in order. */
  delivered: string[];
  now: number;
  socket: number;
  /** Feeds an event; deliveries are handled at once, or fail while `failing` answers true for the item's id. */
  feed(event: WithoutNow<MachineEvent>): void;
  frame(frame: object): void;
  failing: (id: string) => boolean;
  /** Frames the machine sent since the last call. */
  sent(): Record<string, unknown>[];
  /** Effects of one type since the last call of `clear`. */
  of<T extends Effect["type"]>(type: T): (Effect & { type: T })[];
  clear(): void;
  /** Connects up to `ready`. */
  connect(ready?: object): void;
}

export const readyFrame = {
  type: "ready",
  conn: "c1",
  sub: "visitor-7",
  resumed: true,
  cursor: "k0",
  can: { public: ["read", "input"] },
  expiresIn: 840,
  pingMs: 25_000,
  maxFrame: 32_768,
  window: 512,
};

export function item(id: string, body: object = { type: "progress" }, more: object = {}): object {
  const base = { id, at: "2026-11-30T21:00:00.120Z", channel: "public", kind: "run.event", run: "r1", attempt: 1 };
  return { ...base, body, ...more };
}

export function bench(options: Partial<MachineOptions> = {}): Bench {
  const machine = new Machine({
    channels: ["public"],
    session: "0123456789abcdef0123456789abcdef",
    cursor: "k0",
    random: () => 0.5,
    ...options,
  });
  let sentUpTo = 0;
  const run = (effects: Effect[]): void => {
    for (const effect of effects) {
      self.effects.push(effect);
      if (effect.type === "open") self.socket = effect.socket;
      if (effect.type !== "deliver" && effect.type !== "reset") continue;
      const { socket, n } = effect;
      if (!machine.owes(socket, n)) continue;
      const id = effect.type === "deliver" ? effect.item.id : "state";
      if (self.failing(id)) {
        run(machine.handle({ type: "handler_failed", socket, n, error: new Error(`no ${id}`), now: self.now }));
        continue;
      }
      self.delivered.push(id);
      run(machine.handle({ type: "handled", socket, n, now: self.now }));
    }
  };
  const self: Bench = {
    machine,
    effects: [],
    delivered: [],
    now: 1_000,
    socket: 0,
    failing: () => false,
    feed: (event) => run(machine.handle({ ...event, now: self.now } as MachineEvent)),
    frame: (frame) => self.feed({ type: "frame", socket: self.socket, text: JSON.stringify(frame) }),
    sent: () => {
      const frames = self.effects
        .slice(sentUpTo)
        .flatMap((effect) => (effect.type === "send" ? [JSON.parse(effect.text) as Record<string, unknown>] : []));
      sentUpTo = self.effects.length;
      return frames;
    },
    of: <T extends Effect["type"]>(type: T) =>
      self.effects.filter((effect): effect is Effect & { type: T } => effect.type === type),
    clear: () => {
      self.effects = [];
      sentUpTo = 0;
    },
    connect: (ready = {}) => {
      if (machine.status.phase === "waiting") self.feed({ type: "retry" });
      else self.feed({ type: "start" });
      self.feed({ type: "token", token: "jwt" });
      self.feed({ type: "opened", socket: self.socket });
      self.frame({ ...readyFrame, ...ready });
    },
  };
  return self;
}
