/**
 * What belongs to this tab and survives its reload: who the person is, how far the stream was read and what was made
 * of it, and what is still to be sent. A new tab begins with nothing and so is a new person.
 */

import { type Input, newSessionId, type View } from "../../client/ts/src/index.js";

/** What the server put into the page. */
export interface Boot {
  token: string;
  room: string;
  sub: string;
  name: string;
  /** The channel of everyone first, the person's own second. */
  channels: string[];
  /** Path of the room's socket. */
  path: string;
}

/** Who this tab is. */
export interface Identity extends Boot {
  /** 128 random bits, the same from load to load of this tab. */
  session: string;
}

/** A view together with the cursor up to which it is true. Stored as one value, so that the two cannot part. */
export interface Saved {
  cursor: string;
  view: View;
}

const IDENTITY = "parley:identity";
const SAVED = "parley:view";
const OUTBOX = "parley:outbox";

/** Bytes, roughly, up to which a view is worth keeping; a larger one is read again from the room. */
const SAVED_LIMIT = 1_000_000;

/** Reads what the server put into the page. */
export function readBoot(): Boot {
  const text = document.getElementById("parley-boot")?.textContent ?? "";
  const boot = JSON.parse(text) as Boot;
  return { ...boot, path: boot.path || `/v1/rooms/${encodeURIComponent(boot.room)}/ws` };
}

/** The tab's store. A browser that allows no storage gets a tab that forgets. */
export class Tab {
  #identity: Identity;
  /** Whether the token came with this very page and was not used yet. */
  #tokenIsNew: boolean;

  /** Takes up the stored person if there is one for this room, else becomes the one the server offers. */
  constructor(boot: Boot) {
    const stored = read<Identity>(IDENTITY);
    if (stored !== undefined && stored.room === boot.room) {
      this.#identity = stored;
      this.#tokenIsNew = false;
    } else {
      this.forget();
      this.#identity = { ...boot, session: newSessionId() };
      this.#tokenIsNew = true;
      write(IDENTITY, this.#identity);
    }
  }

  get identity(): Identity {
    return this.#identity;
  }

  /** Takes the token that came with the page, once; afterwards a fresh one has to be asked for. */
  takeNewToken(): string | undefined {
    if (!this.#tokenIsNew) return undefined;
    this.#tokenIsNew = false;
    return this.#identity.token;
  }

  /** Keeps a fresh token of the same person. */
  keepToken(token: string): void {
    this.#identity = { ...this.#identity, token };
    write(IDENTITY, this.#identity);
  }

  /** What was read so far, or nothing when it was never kept or was too large. */
  saved(): Saved | undefined {
    const saved = read<Saved>(SAVED);
    return saved?.view?.version === 1 && typeof saved.cursor === "string" ? saved : undefined;
  }

  /** Keeps what was read so far. */
  save(saved: Saved): void {
    const text = JSON.stringify(saved);
    if (text.length > SAVED_LIMIT || !writeText(SAVED, text)) remove(SAVED);
  }

  /** Inputs that were not durable when the tab was last seen. */
  load(): Input[] {
    const inputs = read<Input[]>(OUTBOX);
    return Array.isArray(inputs) ? inputs : [];
  }

  /** Keeps the inputs that are not durable yet. */
  saveOutbox(inputs: Input[]): void {
    write(OUTBOX, inputs);
  }

  /** Forgets the person: the next load is somebody new. */
  forget(): void {
    for (const key of [IDENTITY, SAVED, OUTBOX]) remove(key);
  }
}

/**
 * Holds this session for this tab. A duplicated tab starts with a copy of the storage; since two tabs with one session
 * would throw each other out, the copy is told and becomes somebody new. A reloaded tab may have to wait a moment
 * until its predecessor has let go.
 *
 * @returns false when another tab holds the session.
 */
export async function holdSession(session: string): Promise<boolean> {
  const locks = navigator.locks as LockManager | undefined;
  if (locks === undefined) return true;
  return await new Promise<boolean>((resolve) => {
    const wait = AbortSignal.timeout(1_500);
    locks
      .request(`parley:${session}`, { signal: wait }, () => {
        resolve(true);
        return new Promise<never>(() => {}); // Held until the tab goes.
      })
      .catch(() => resolve(false));
  });
}

function read<T>(key: string): T | undefined {
  try {
    const text = sessionStorage.getItem(key);
    return text === null ? undefined : (JSON.parse(text) as T);
  } catch {
    return undefined;
  }
}

function write(key: string, value: unknown): void {
  writeText(key, JSON.stringify(value));
}

function writeText(key: string, text: string): boolean {
  try {
    sessionStorage.setItem(key, text);
    return true;
  } catch {
    return false;
  }
}

function remove(key: string): void {
  try {
    sessionStorage.removeItem(key);
  } catch {
    // No storage: there is nothing to remove.
  }
}
