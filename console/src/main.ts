/** The page of one room: puts connection, fold and display together. */

import {
  Connection,
  emptyView,
  foldItem,
  foldState,
  type Handler,
  type Input,
  type Item,
  isTerminal,
  type Message,
  newInputId,
  openRun,
  RequestError,
  type RunView,
  TokenRefused,
  type View,
} from "../../client/ts/src/index.js";
import { Composer, type Draft } from "./composer.js";
import { refusal, runLine } from "./phrases.js";
import { StatusLine } from "./status.js";
import { holdSession, readBoot, Tab } from "./tab.js";
import { type Place, places, Tabs } from "./tabs.js";
import { agentName, button, element, type Pending, Transcript } from "./transcript.js";

const SAVE_MS = 250;

const questions = [
  "How do I set up the board?",
  "May I hit a single checker?",
  "When may I bear off?",
  "How does the doubling cube work?",
  "What is a gammon?",
];

class Page implements Handler {
  readonly #tab: Tab;
  readonly #me: string;
  readonly #channels: Record<Place, string>;
  readonly #tabs: Tabs;
  readonly #composer: Composer;
  readonly #status: StatusLine;
  readonly #transcripts: Record<Place, Transcript>;
  readonly #welcomes: Record<Place, HTMLElement>;
  readonly #connection: Connection;
  readonly #pending = new Map<string, Pending>();
  #view: View = emptyView();
  #cursor: string | undefined;
  #saving: ReturnType<typeof setTimeout> | undefined;
  /** While a stream is read from its beginning, nothing of it is news. */
  #quiet = false;
  #following = true;

  constructor(tab: Tab) {
    this.#tab = tab;
    const { sub, name, room, channels, session, path } = tab.identity;
    this.#me = sub;
    this.#channels = { public: channels[0] ?? "public", private: channels[1] ?? `private:${sub}` };
    const saved = tab.saved();
    if (saved !== undefined) {
      this.#view = saved.view;
      this.#cursor = saved.cursor;
    }
    setText("room", room);
    setText("who", name !== "" && name !== sub ? `${name} (${sub})` : sub);

    const around = {
      me: sub,
      view: () => this.#view,
      edit: (pending: Pending) => this.#giveUp(pending, true),
      discard: (pending: Pending) => this.#giveUp(pending, false),
    };
    this.#transcripts = {
      public: new Transcript(this.#channels.public, around),
      private: new Transcript(this.#channels.private, around),
    };
    this.#composer = new Composer({ send: (draft) => this.#ask(draft), stop: () => void this.#stop() });
    this.#tabs = new Tabs((place) => this.#turn(place));
    this.#welcomes = { public: this.#welcome("public"), private: this.#welcome("private") };
    for (const place of places) {
      this.#tabs.panel(place).append(this.#welcomes[place], this.#transcripts[place].list);
      this.#transcripts[place].reset();
    }

    const url = new URL(path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    this.#connection = new Connection({
      url: url.href,
      channels: [this.#channels.public, this.#channels.private],
      session,
      cursor: this.#cursor ?? null,
      from: "start",
      client: "parley-console/0.1.0",
      token: () => this.#token(),
      handler: this,
      outbox: { load: () => tab.load(), save: (inputs) => tab.saveOutbox(inputs) },
    });
    this.#status = new StatusLine({
      retry: () => this.#connection.retryNow(),
      connect: () => this.#connection.start(),
      newcomer: () => becomeNewcomer(tab),
    });
    for (const input of this.#connection.outbox) this.#await(input);
    this.#follow();
    this.#turn("public");
  }

  start(): void {
    const shown = (): void => {
      this.#connection.setHidden(document.hidden);
      if (document.hidden) this.#save();
      else this.#hope();
    };
    document.addEventListener("visibilitychange", shown);
    addEventListener("online", () => this.#hope());
    addEventListener("pagehide", () => this.#save());
    shown();
    this.#connection.start();
    // A keyboard that covers half of a phone is only opened by the person.
    if (matchMedia("(hover: hover)").matches) this.#composer.focus();
  }

  /** There is reason to think that a try would succeed now. */
  #hope(): void {
    const { phase, cause } = this.#connection.status;
    if (phase === "stopped" && cause?.kind === "budget") this.#connection.start();
    else this.#connection.retryNow();
  }

  reset(state: Parameters<Handler["reset"]>[0]): void {
    this.#view = foldState(state, this.#me);
    this.#quiet = true;
  }

  item(item: Item): void {
    const change = foldItem(this.#view, item);
    const inputId = item.kind === "input" ? item.body["inputId"] : undefined;
    if (typeof inputId === "string") this.#settle(inputId);
    if (this.#quiet) return; // Shown in one go when the present is reached.
    for (const message of change.messages) {
      const place = this.#placeOf(message.channel);
      if (place === undefined) continue;
      this.#transcripts[place].message(message);
      if (message.status !== "open") this.#tell(place, message);
    }
    // Messages first: the line on a run stands below them.
    const runs = new Map(change.runs.map((run) => [run.id, run]));
    for (const message of change.messages) {
      const run = message.run === undefined ? undefined : this.#view.runs[message.run];
      if (run !== undefined) runs.set(run.id, run);
    }
    for (const run of runs.values()) {
      const place = this.#placeOf(run.channel);
      if (place === undefined) continue;
      this.#transcripts[place].run(run);
      if (isTerminal(run.status) && item.kind === "run.event") this.#tellEnd(place, run);
    }
    if (change.room) for (const place of places) this.#transcripts[place].reset();
    this.#refresh();
  }

  cursor(cursor: string): void {
    this.#cursor = cursor;
    this.#saving ??= setTimeout(() => this.#save(), SAVE_MS);
  }

  status(status: Parameters<NonNullable<Handler["status"]>>[0]): void {
    this.#status.show(status);
    if (status.phase === "live" && this.#quiet) {
      this.#quiet = false;
      for (const place of places) this.#transcripts[place].reset();
    }
    document.body.dataset["phase"] = status.phase;
    this.#refresh();
  }

  deferred(id: string, code: string, message: string): void {
    const pending = this.#pending.get(id);
    if (pending === undefined) return;
    pending.deferred = refusal(code, message);
    this.#showPending(pending);
  }

  refused(id: string, code: string, message: string): void {
    const pending = this.#pending.get(id);
    const words = refusal(code, message);
    if (pending === undefined) return this.#composer.problem(words);
    pending.refused = words;
    this.#showPending(pending);
    this.#say(`Not sent. ${words}`);
  }

  fault(error: Error): void {
    console.warn(`parley: ${error.name}`);
  }

  async #token(): Promise<string> {
    const fresh = this.#tab.takeNewToken();
    if (fresh !== undefined) return fresh;
    const answer = await fetch("/dev/token", {
      method: "POST",
      headers: { Authorization: `Bearer ${this.#tab.identity.token}` },
      cache: "no-store",
    });
    if (answer.status === 401 || answer.status === 403) throw new TokenRefused("the sign-in has ended");
    if (!answer.ok) throw new Error(`token: status ${answer.status}`);
    const { token } = (await answer.json()) as { token?: unknown };
    if (typeof token !== "string") throw new Error("token: unreadable answer");
    this.#tab.keepToken(token);
    return token;
  }

  #ask({ text, agent }: Draft): void {
    const input: Input = {
      id: newInputId(),
      channel: this.#channels[this.#tabs.current],
      text,
      modality: "text",
    };
    // An answer goes to the agent that asked, whoever else would answer by default.
    const to = agent ?? this.#asked()?.agent;
    if (to !== undefined) input.agents = [to];
    // A person who does not answer must not keep everybody waiting; an answer that is being given is not cut short.
    if (this.#unanswered() !== undefined) input.onBusy = "supersede";
    this.#await(input);
    this.#following = true;
    this.#connection.submit(input);
    this.#refresh();
  }

  async #stop(): Promise<void> {
    const run = this.#stoppable();
    if (run === undefined) return;
    try {
      const { canceled } = await this.#connection.cancel(run.id);
      if (!canceled) this.#composer.problem("It had already ended.");
    } catch (error) {
      this.#composer.problem(error instanceof RequestError ? refusal(error.code, error.message) : "It could not be stopped.");
    }
  }

  /** The run of this conversation that Stop would end: one's own, the open one before those that wait for it. */
  #stoppable(): RunView | undefined {
    const channel = this.#channels[this.#tabs.current];
    const mine = (run: RunView | undefined): boolean =>
      run !== undefined && (run.askedBy === undefined || run.askedBy === this.#me);
    const open = openRun(this.#view, channel);
    if (mine(open)) return open;
    return Object.values(this.#view.runs).findLast((run) => run.channel === channel && run.status === "queued" && mine(run));
  }

  /** The run of this conversation that waits for this person's answer. */
  #asked(): RunView | undefined {
    const open = openRun(this.#view, this.#channels[this.#tabs.current]);
    return open?.status === "waiting_for_input" && open.askedBy === this.#me ? open : undefined;
  }

  /** The run of this conversation that waits for somebody else's answer. */
  #unanswered(): RunView | undefined {
    const open = openRun(this.#view, this.#channels[this.#tabs.current]);
    return open?.status === "waiting_for_input" && open !== this.#asked() ? open : undefined;
  }

  #await(input: Input): void {
    const text = input.agents?.[0] === undefined ? input.text : `@${input.agents[0]} ${input.text}`;
    const pending: Pending = { id: input.id, channel: input.channel, text };
    this.#pending.set(input.id, pending);
    this.#showPending(pending);
  }

  #showPending(pending: Pending): void {
    const place = this.#placeOf(pending.channel);
    if (place !== undefined) this.#transcripts[place].pending(pending);
    this.#refresh();
  }

  #settle(id: string): void {
    this.#pending.delete(id);
    for (const place of places) this.#transcripts[place].settle(id);
  }

  #giveUp(pending: Pending, edit: boolean): void {
    this.#settle(pending.id);
    if (edit) this.#composer.edit(pending.text);
    else this.#composer.focus();
    this.#refresh();
  }

  #turn(place: Place): void {
    this.#composer.turn(place, place === "public" ? "Seen by everyone in this room." : "Seen by you alone.");
    this.#following = true;
    this.#refresh();
  }

  #refresh(): void {
    for (const place of places) this.#welcomes[place].hidden = !this.#transcripts[place].empty || !this.#settled();
    for (const place of places) {
      this.#tabs.panel(place).dataset["running"] = openRun(this.#view, this.#channels[place])?.status ?? "";
    }
    const asked = this.#asked();
    if (asked !== undefined) this.#composer.ask(`Your answer to ${agentName(this.#view, asked.agent)}`, "Answer");
    else this.#composer.ask("Your question", "Ask about a rule");
    this.#composer.stoppable(this.#stoppable() !== undefined);
    const [first, ...rest] = this.#view.agents.map((agent) => agent.id);
    const others = (asked === undefined || asked.agent === first ? rest : [first]).map((id) => `@${id}`);
    this.#composer.hint(others.length === 0 ? "" : `Begin with ${others.join(" or ")} to ask another agent.`);
    if (this.#following) this.#toLatest();
  }

  /** Whether what the room holds is known, so that an empty list is really empty. */
  #settled(): boolean {
    return this.#cursor !== undefined && !this.#quiet;
  }

  #tell(place: Place, message: Message): void {
    if (this.#quiet || message.status === "abandoned" || message.text === "") return;
    const mine = message.kind === "input" && message.speaker.id === this.#me;
    if (mine) return;
    this.#tabs.arrived(place);
    const name = message.kind === "output" ? agentName(this.#view, message.speaker.id) : message.speaker.id;
    const where = place === this.#tabs.current ? "" : place === "public" ? " in the conversation of everyone" : " to only you";
    this.#say(`${name}${message.purpose === "question" ? " asks" : ""}${where}: ${message.text}`);
  }

  #tellEnd(place: Place, run: RunView): void {
    if (this.#quiet || run.status === "completed" || place !== this.#tabs.current) return;
    this.#say(runLine(run, agentName(this.#view, run.agent), run.askedBy === this.#me, false, true));
  }

  /** Hands a finished text to screen readers; deltas are never announced. */
  #say(text: string): void {
    const announcer = document.getElementById("announcer");
    if (announcer === null || text === "") return;
    announcer.append(element("p", "", text));
    while (announcer.childElementCount > 4) announcer.firstElementChild?.remove();
  }

  #welcome(place: Place): HTMLElement {
    const box = element("div", "welcome");
    box.append(element("h2", "", "Ask the guide about backgammon"));
    box.append(
      element(
        "p",
        "",
        place === "public"
          ? "Everyone in this room reads this conversation. The guide answers from the rules of the game and names the rule it used."
          : "Nobody but you reads this conversation. The guide answers from the rules of the game and names the rule it used.",
      ),
    );
    const list = element("ul", "suggestions");
    list.setAttribute("aria-label", "Questions to begin with");
    for (const question of questions) {
      const entry = element("li", "");
      const suggestion = button(question, () => {
        this.#composer.focus();
        this.#ask({ text: question });
      });
      suggestion.className = "suggestion";
      entry.append(suggestion);
      list.append(entry);
    }
    box.append(list);
    return box;
  }

  /** Keeps the end in sight unless the person has scrolled away from it. */
  #follow(): void {
    const latest = document.getElementById("latest") as HTMLElement;
    for (const place of places) {
      const panel = this.#tabs.panel(place);
      panel.addEventListener("scroll", () => {
        if (place !== this.#tabs.current) return;
        this.#following = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 48;
        latest.hidden = this.#following;
      });
    }
    latest.addEventListener("click", () => {
      this.#following = true;
      this.#toLatest();
      this.#tabs.panel(this.#tabs.current).focus();
    });
    addEventListener("resize", () => this.#following && this.#toLatest());
  }

  #toLatest(): void {
    const place = this.#tabs.current;
    const panel = this.#tabs.panel(place);
    // A welcome is read from its beginning.
    panel.scrollTop = this.#transcripts[place].empty ? 0 : panel.scrollHeight;
    (document.getElementById("latest") as HTMLElement).hidden = true;
  }

  #placeOf(channel: string): Place | undefined {
    return places.find((place) => this.#channels[place] === channel);
  }

  #save(): void {
    clearTimeout(this.#saving);
    this.#saving = undefined;
    if (this.#cursor !== undefined) this.#tab.save({ cursor: this.#cursor, view: this.#view });
  }
}

function becomeNewcomer(tab: Tab): void {
  tab.forget();
  location.reload();
}

function setText(id: string, text: string): void {
  const node = document.getElementById(id);
  if (node !== null) node.textContent = text;
}

const boot = readBoot();
let tab = new Tab(boot);
if (!(await holdSession(tab.identity.session))) {
  tab.forget();
  tab = new Tab(boot);
  await holdSession(tab.identity.session);
}
new Page(tab).start();
