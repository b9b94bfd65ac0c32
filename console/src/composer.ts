/** The question box: text, Send and Stop. It keeps a draft for each conversation. */

import type { Place } from "./tabs.js";

/** The largest text of an input, in bytes of UTF-8. */
const TEXT_LIMIT = 8 * 1024;

/** What is to be sent. */
export interface Draft {
  text: string;
  /** The agent that a leading @name addresses. */
  agent?: string;
}

/** Called with a draft that passed the checks, and for Stop. */
export interface ComposerActions {
  send: (draft: Draft) => void;
  stop: () => void;
}

/** Owned by the page. */
export class Composer {
  readonly #form = document.getElementById("composer") as HTMLFormElement;
  readonly #text = document.getElementById("text") as HTMLTextAreaElement;
  readonly #label = document.getElementById("text-label") as HTMLElement;
  readonly #stop = document.getElementById("stop") as HTMLButtonElement;
  readonly #problem = document.getElementById("problem") as HTMLElement;
  readonly #audience = document.getElementById("audience") as HTMLElement;
  readonly #agents = document.getElementById("agents") as HTMLElement;
  readonly #actions: ComposerActions;
  readonly #drafts = new Map<Place, string>();
  #place: Place = "public";

  constructor(actions: ComposerActions) {
    this.#actions = actions;
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#text.addEventListener("keydown", (event) => {
      // While an input method composes, Enter chooses a word.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#send();
    });
    this.#text.addEventListener("input", () => {
      this.problem("");
      this.#fit();
    });
    this.#stop.addEventListener("click", () => this.#actions.stop());
  }

  /** Turns to another conversation. */
  turn(place: Place, audience: string): void {
    this.#drafts.set(this.#place, this.#text.value);
    this.#place = place;
    this.#text.value = this.#drafts.get(place) ?? "";
    this.#audience.textContent = audience;
    this.problem("");
    this.#fit();
  }

  /** Puts a text back for another try, in front of nothing: a draft in the box is kept below it. */
  edit(text: string): void {
    this.#text.value = this.#text.value.trim() === "" ? text : `${text}\n${this.#text.value}`;
    this.#fit();
    this.focus();
  }

  /** Says what the box asks for, above it and, shorter, inside it while it is empty. */
  ask(label: string, inside: string): void {
    if (this.#label.textContent !== label) this.#label.textContent = label;
    this.#text.placeholder = inside;
  }

  /** Says which agents can be addressed. */
  hint(text: string): void {
    if (this.#agents.textContent !== text) this.#agents.textContent = text;
  }

  /** Shows or hides Stop. */
  stoppable(shown: boolean): void {
    if (this.#stop.hidden === !shown) return;
    if (!shown && document.activeElement === this.#stop) this.focus();
    this.#stop.hidden = !shown;
  }

  /** Says why something was not done; an empty text takes it back. */
  problem(text: string): void {
    if (this.#problem.textContent !== text) this.#problem.textContent = text;
    this.#problem.hidden = text === "";
    if (text === "") this.#text.removeAttribute("aria-invalid");
  }

  focus(): void {
    this.#text.focus();
  }

  #send(): void {
    const text = this.#text.value.trim();
    const draft = parse(text);
    const problem = check(draft.text);
    if (problem !== "") {
      this.problem(problem);
      this.#text.setAttribute("aria-invalid", "true");
      return this.focus();
    }
    this.#text.value = "";
    this.problem("");
    this.#fit();
    this.focus();
    this.#actions.send(draft);
  }

  /** Grows with the text up to the limit that the style sets. */
  #fit(): void {
    this.#text.style.height = "auto";
    this.#text.style.height = `${this.#text.scrollHeight + 2}px`;
  }
}

/** A leading @name addresses an agent and is not part of the text. */
function parse(text: string): Draft {
  const match = /^@([A-Za-z0-9._:~-]{1,128})\s+(?=\S)/.exec(text);
  if (match?.[1] === undefined) return { text };
  return { text: text.slice(match[0].length), agent: match[1] };
}

function check(text: string): string {
  if (text === "") return "Write something first.";
  const bytes = new TextEncoder().encode(text).length;
  if (bytes > TEXT_LIMIT) return `The text is too long: ${bytes} bytes, at most ${TEXT_LIMIT} are allowed. Shorten it.`;
  if (/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/.test(text)) return "The text has control characters. Remove them.";
  return "";
}
