/**
 * Shows one channel: its messages in order, below each run's messages a line on how the run stands, at the end what
 * is still to be sent. Text of people and models only ever becomes text nodes.
 */

import { isTerminal, type Message, type RunView, type View } from "../../client/ts/src/index.js";
import { audience, runLine } from "./phrases.js";

/** An input that has not come back from the room as an item yet. */
export interface Pending {
  id: string;
  channel: string;
  text: string;
  /** Words for a refusal; absent while it is on its way. */
  refused?: string;
  /** Words for a wait that the room asked for. */
  deferred?: string;
}

/** What a transcript needs from the page around it. */
export interface Surroundings {
  me: string;
  view: () => View;
  edit: (pending: Pending) => void;
  discard: (pending: Pending) => void;
}

/** The list of one channel. Owned by the page. */
export class Transcript {
  readonly list = element("ol", "messages");
  readonly #channel: string;
  readonly #around: Surroundings;
  readonly #messages = new Map<string, { row: HTMLElement; text: StreamedText; note: HTMLElement }>();
  readonly #runs = new Map<string, HTMLElement>();
  readonly #pending = new Map<string, HTMLElement>();

  constructor(channel: string, around: Surroundings) {
    this.#channel = channel;
    this.#around = around;
  }

  /** Whether there is nothing to show. */
  get empty(): boolean {
    return this.#messages.size === 0 && this.#pending.size === 0;
  }

  /** Shows the view from nothing. */
  reset(): void {
    this.list.replaceChildren(...this.#pending.values());
    this.#messages.clear();
    this.#runs.clear();
    const view = this.#around.view();
    for (const message of view.messages[this.#channel] ?? []) this.message(message);
    for (const run of Object.values(view.runs)) if (run.channel === this.#channel) this.run(run);
  }

  /** Shows a new or changed message. */
  message(message: Message): void {
    let shown = this.#messages.get(message.key);
    if (shown === undefined) {
      shown = this.#newMessage(message);
      this.#messages.set(message.key, shown);
      this.#insert(shown.row);
    }
    const { row, text, note } = shown;
    row.dataset["status"] = message.status;
    row.hidden = message.status === "abandoned" || (message.text === "" && message.status !== "open");
    row.setAttribute("aria-busy", String(message.status === "open"));
    text.set(message.text, message.status !== "open");
    note.hidden = message.status !== "interrupted";
  }

  /** Shows how a run stands, below the last of its messages. */
  run(run: RunView): void {
    const messages = (this.#around.view().messages[this.#channel] ?? []).filter((m) => m.run === run.id);
    const outputs = messages.filter((message) => message.kind === "output");
    const agent = agentName(this.#around.view(), run.agent);
    const speaking = outputs.some((message) => message.status === "open" && message.text !== "");
    const answered = outputs.some((message) => message.text !== "");
    const words = runLine(run, agent, run.askedBy === this.#around.me, speaking, answered);
    let line = this.#runs.get(run.id);
    if (words === "") {
      line?.remove();
      this.#runs.delete(run.id);
      return;
    }
    if (line === undefined) {
      line = element("li", "run");
      line.append(element("span", "run-text"));
      this.#runs.set(run.id, line);
    }
    line.dataset["status"] = run.status;
    line.classList.toggle("working", !isTerminal(run.status) && run.status !== "waiting_for_input");
    const text = line.firstElementChild as HTMLElement;
    if (text.textContent !== words) text.textContent = words;
    const last = messages.map((m) => this.#messages.get(m.key)?.row).findLast((row) => row !== undefined);
    if (last === undefined) {
      if (line.parentNode === null) this.#insert(line);
    } else if (last.nextSibling !== line) last.after(line);
  }

  /** Shows an input that is on its way or was refused. */
  pending(pending: Pending): void {
    const old = this.#pending.get(pending.id);
    const row = this.#newPending(pending);
    this.#pending.set(pending.id, row);
    if (old === undefined) this.list.append(row);
    else old.replaceWith(row);
  }

  /** Takes away an input that has come back as an item or was given up. */
  settle(id: string): void {
    this.#pending.get(id)?.remove();
    this.#pending.delete(id);
  }

  // What is not durable stands after everything that is.
  #insert(row: HTMLElement): void {
    this.list.insertBefore(row, this.#pending.values().next().value ?? null);
  }

  #newMessage(message: Message) {
    const view = this.#around.view();
    const mine = message.kind === "input" && message.speaker.id === this.#around.me;
    const row = element("li", `message ${message.kind === "output" ? "agent" : mine ? "mine" : "other"}`);
    const name = message.kind === "output" ? agentName(view, message.speaker.id) : mine ? "You" : message.speaker.id;
    const meta = element("p", "meta");
    meta.append(element("span", "name", message.purpose === "question" ? `${name} asks` : name));
    const addressed = message.run === undefined ? undefined : view.runs[message.run]?.agent;
    if (message.kind === "input" && addressed && view.agents.length > 1) {
      meta.append(element("span", "to", `to ${agentName(view, addressed)}`));
    }
    const { scope, text } = audience(message.disclosure, this.#around.me);
    const seen = element("span", `audience ${scope}`);
    seen.append(element("span", "unseen", "Seen by: "), text);
    meta.append(seen);
    if (message.at !== "") {
      const time = element("time", "at", clockTime(message.at));
      time.setAttribute("datetime", message.at);
      meta.append(time);
    }
    const body = element("div", "text");
    const note = element("p", "unseen", "Cut off here.");
    row.dataset["purpose"] = message.purpose;
    row.classList.toggle("continued", this.#continues(message));
    row.append(meta);
    const question = this.#distantQuestion(message);
    if (question !== undefined) {
      const asker = question.speaker.id === this.#around.me ? "you" : question.speaker.id;
      row.append(element("p", "reply", `To ${asker}: ${question.text}`));
    }
    row.append(body, note);
    return { row, text: new StreamedText(body, message.kind === "output"), note };
  }

  /** The question that an output answers, when something else stands between the two: it had to wait its turn. */
  #distantQuestion(message: Message): Message | undefined {
    const above = this.#above(message);
    if (message.kind !== "output" || above === undefined || above.run === message.run) return undefined;
    const all = this.#around.view().messages[this.#channel] ?? [];
    return all.findLast((other) => other.kind === "input" && other.run === message.run);
  }

  /** The message above this one, but for those that were given up. */
  #above(message: Message): Message | undefined {
    const all = this.#around.view().messages[this.#channel] ?? [];
    return all.slice(0, all.indexOf(message)).findLast((other) => other.status !== "abandoned");
  }

  /** Whether a message only goes on with the answer right above it, so that its head need not be seen again. */
  #continues(message: Message): boolean {
    const above = this.#above(message);
    return (
      message.kind === "output" &&
      above?.kind === "output" &&
      above.run === message.run &&
      above.purpose === message.purpose &&
      JSON.stringify(above.disclosure) === JSON.stringify(message.disclosure)
    );
  }

  #newPending(pending: Pending): HTMLElement {
    const row = element("li", "message mine pending");
    const meta = element("p", "meta");
    meta.append(element("span", "name", "You"));
    const body = element("div", "text", pending.text);
    row.append(meta, body);
    if (pending.refused === undefined) {
      meta.append(element("span", "at", "Sending…"));
      if (pending.deferred !== undefined) row.append(element("p", "note", pending.deferred));
      return row;
    }
    row.classList.add("refused");
    row.append(element("p", "note", `Not sent. ${pending.refused}`));
    const actions = element("p", "actions");
    const edit = button("Edit", () => this.#around.edit(pending));
    const discard = button("Discard", () => this.#around.discard(pending));
    actions.append(edit, discard);
    row.append(actions);
    return row;
  }
}

/** The name of an agent as people know it. */
export function agentName(view: View, id: string): string {
  return view.agents.find((agent) => agent.id === id)?.label || id || "The agent";
}

const CITATION = /\[([a-z0-9]+(?:[-.][a-z0-9]+)*)\]/g;
/** A bracket that is still open may become a citation; longer ones are text. */
const CITATION_LIMIT = 64;

/**
 * Text that grows. Only what is new is added, so that a selection or a reading position in the old text stays; ids of
 * rules in brackets are set apart.
 */
class StreamedText {
  readonly #node: HTMLElement;
  readonly #citations: boolean;
  #text = "";
  /** Length of the text that is on the page. */
  #shown = 0;

  constructor(node: HTMLElement, citations: boolean) {
    this.#node = node;
    this.#citations = citations;
  }

  /** Shows `text`; `whole` tells that nothing will be added. */
  set(text: string, whole: boolean): void {
    if (!text.startsWith(this.#text)) {
      this.#node.replaceChildren();
      this.#shown = 0;
    }
    this.#text = text;
    let rest = text.slice(this.#shown);
    if (this.#citations && !whole) {
      const open = rest.lastIndexOf("[");
      if (open >= 0 && !rest.includes("]", open) && rest.length - open < CITATION_LIMIT) rest = rest.slice(0, open);
    }
    if (rest === "") return;
    this.#shown += rest.length;
    let from = 0;
    if (this.#citations) {
      for (const match of rest.matchAll(CITATION)) {
        if (match.index > from) this.#node.append(rest.slice(from, match.index));
        const cite = element("span", "cite", match[1] ?? "");
        cite.title = "The rule that this answer rests on";
        this.#node.append(cite);
        from = match.index + match[0].length;
      }
    }
    if (from < rest.length) this.#node.append(rest.slice(from));
    this.#node.normalize();
  }
}

/** A new element with a class and, if given, a text. */
export function element(tag: string, className: string, text?: string): HTMLElement {
  const node = document.createElement(tag);
  if (className !== "") node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

/** A new button that does not submit a form. */
export function button(label: string, press: () => void): HTMLButtonElement {
  const node = document.createElement("button");
  node.type = "button";
  node.className = "quiet";
  node.textContent = label;
  node.addEventListener("click", press);
  return node;
}

function clockTime(at: string): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "" : time.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}
