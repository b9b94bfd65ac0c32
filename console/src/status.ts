/** The line at the top that tells how the connection stands, with the one thing a person can do about it. */

import type { Status } from "../../client/ts/src/index.js";
import { stopped, waiting } from "./phrases.js";

/** What the line's button does. */
export interface StatusActions {
  retry: () => void;
  connect: () => void;
  newcomer: () => void;
}

/** Shows a status. The countdown is kept out of the live region, which would read out every second. */
export class StatusLine {
  readonly #box = document.querySelector<HTMLElement>(".status");
  readonly #text = document.getElementById("status");
  readonly #countdown = document.getElementById("countdown");
  readonly #button = document.getElementById("status-action");
  readonly #actions: StatusActions;
  #press: () => void = () => {};
  #retryAt: number | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(actions: StatusActions) {
    this.#actions = actions;
    this.#button?.addEventListener("click", () => this.#press());
  }

  show(status: Status): void {
    this.#retryAt = status.retryAt;
    switch (status.phase) {
      case "live":
        this.#set("good", "Connected");
        break;
      case "replaying":
        this.#set("busy", "Catching up…");
        break;
      case "waiting":
        this.#set("bad", waiting(status.cause), "Try now", this.#actions.retry);
        break;
      case "stopped": {
        const stop = stopped(status.cause);
        if (stop.action === "retry") this.#set("bad", stop.text, "Connect", this.#actions.connect);
        else if (stop.action === "reload") this.#set("bad", stop.text, "Reload", () => location.reload());
        else if (stop.action === "newcomer") {
          this.#set("bad", stop.text, "Go on as a new visitor", this.#actions.newcomer);
        } else this.#set("bad", stop.text);
        break;
      }
      default:
        this.#set("busy", "Connecting…");
    }
    clearInterval(this.#timer);
    if (this.#retryAt !== undefined) this.#timer = setInterval(() => this.#count(), 1_000);
    this.#count();
  }

  #set(state: "good" | "busy" | "bad", text: string, label = "", press: () => void = () => {}): void {
    if (this.#box) this.#box.dataset["state"] = state;
    if (this.#text && this.#text.textContent !== text) this.#text.textContent = text;
    this.#press = press;
    if (this.#button === null) return;
    // A hidden button cannot keep the focus; the question box is where people go on.
    if (label === "" && document.activeElement === this.#button) document.getElementById("text")?.focus();
    this.#button.hidden = label === "";
    this.#button.textContent = label;
  }

  #count(): void {
    if (this.#countdown === null) return;
    const seconds = this.#retryAt === undefined ? 0 : Math.ceil((this.#retryAt - performance.now()) / 1_000);
    this.#countdown.textContent = seconds > 1 ? `Next try in ${seconds} s.` : "";
  }
}
