// A stand-in for the server: one room in memory that speaks as much of parley.v1 as the page needs, with faults on
// demand that a sound server shows only when something is broken. It keeps nothing and proves nothing about the real
// server; it is here so that the page's behaviour under faults has a test.
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
import { WebSocketServer } from "ws";

const dist = new URL("../dist/", import.meta.url);
const types = { ".js": "text/javascript", ".css": "text/css" };
const policy =
  "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const room = "demo-1";

const answers = {
  guide: [
    "You may bear off once all fifteen of your checkers are in your home board. ",
    "Roll, then take a checker from the point that each die names [bearing-off].\n\n",
    "If that point is empty you must use a checker from a higher point; ",
    "if there is none, take one from the highest point that has one [bearing-off-high].",
  ],
  storyteller: [
    "Long before the doubling cube was thought of, ",
    "two ferrymen on the Tigris played for the next day's first crossing. ",
    "The older one never hurried. ",
    "He built his home board point by point, ",
    "and when the younger one's last checker was hit, ",
    "there was no point left for it to enter. ",
    "So he sat on the bar and watched the river, ",
    "and that is why, they say, ",
    "a patient prime is worth more than a lucky roll.",
  ],
};

/** Starts a room on a free port. Answers its address and `restart`, which throws everybody out with a code. */
export async function startFake() {
  const entries = [];
  const runs = new Map();
  const inputs = new Map();
  const sockets = new Set();
  let visitors = 0;
  let refuse = [];

  const append = (entry) => {
    entries.push({ id: `e${entries.length}`, at: new Date().toISOString(), ...entry });
    for (const socket of sockets) socket.feed?.();
  };
  const runEvent = (run, body) =>
    append({
      channel: run.channel,
      kind: "run.event",
      run: run.id,
      attempt: run.attempt,
      ...(body.type === "attempt_started" ? { agent: run.agent } : {}),
      ...run.audience,
      body,
    });

  async function drive(run, text) {
    runEvent(run, { type: "attempt_started", attempt: run.attempt, resumed: false });
    await sleep(150);
    if (run.ended) return;
    runEvent(run, { type: "progress", stage: "search", message: "Looking through the rules", current: 1, total: 3 });
    await sleep(run.agent === "storyteller" ? 300 : 500);
    if (/fail/.test(text)) return end(run, { type: "run_failed", code: "run_processing_failed", message: "The answer could not be made." });
    if (/which|ask back/.test(text)) {
      speak(run, "o1", "Do you mean the start of the game or bearing off?", true, "question");
      run.waiting = true;
      return runEvent(run, { type: "input_requested", requestId: "q1" });
    }
    const words = answers[run.agent].join("").split(/(?<= )/);
    const pause = run.agent === "storyteller" ? 70 : 15;
    for (const [i, word] of words.entries()) {
      if (run.ended) return;
      if (/crash/.test(text) && i === 12 && run.attempt === 1) {
        run.attempt = 2;
        runEvent(run, { type: "attempt_started", attempt: 2, resumed: true });
        return drive(run, text);
      }
      speak(run, `o${run.attempt}`, word, i === words.length - 1);
      await sleep(pause);
    }
    end(run, { type: "completed" });
  }
  function speak(run, outputId, delta, final, purpose = "answer") {
    runEvent(run, { type: "assistant_output", outputId, delta, purpose, ...(final ? { final } : {}) });
  }
  function end(run, body) {
    if (run.ended) return;
    run.ended = true;
    runEvent(run, body);
  }

  const http = createServer(async (request, response) => {
    const url = new URL(request.url, "http://localhost");
    response.setHeader("Content-Security-Policy", policy);
    if (url.pathname === "/dev/token") {
      const token = (request.headers.authorization ?? "").replace("Bearer ", "");
      response.writeHead(token.startsWith("visitor-") ? 200 : 401, { "Content-Type": "application/json" });
      return response.end(JSON.stringify({ token, expiresIn: 3600 }));
    }
    if (url.pathname === "/" && url.searchParams.get("key") === "fake") {
      const sub = `visitor-${++visitors}`;
      const boot = { token: sub, room, sub, name: "", path: "", channels: ["public", `private:${sub}`] };
      const html = (await readFile(new URL("index.html", dist), "utf8")).replace("{{boot}}", () => JSON.stringify(boot));
      response.writeHead(200, { "Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store" });
      return response.end(html);
    }
    const name = /^\/assets\/([a-z.]+)$/.exec(url.pathname)?.[1];
    const type = types[name?.slice(name.lastIndexOf("."))];
    if (type === undefined) return response.writeHead(404).end();
    response.writeHead(200, { "Content-Type": type });
    return response.end(await readFile(new URL(`assets/${name}`, dist)));
  });

  const server = new WebSocketServer({ server: http, handleProtocols: (offered) => (offered.has("parley.v1") ? "parley.v1" : false) });
  server.on("connection", (socket) => {
    const send = (frame) => socket.readyState === 1 && socket.send(JSON.stringify(frame));
    let hello;
    let position = 0;
    let n = 0;
    const visible = (entry) => entry.channel === undefined || hello.channels.includes(entry.channel);
    socket.feed = () => {
      const batch = entries.slice(position).filter(visible).slice(0, 64);
      if (batch.length === 0) return;
      position = entries.indexOf(batch.at(-1)) + 1;
      const items = batch.map(({ by, inputId, ...entry }) =>
        by === hello.token ? { ...entry, body: { ...entry.body, inputId } } : entry,
      );
      send({ type: "events", n: n + 1, cursor: `at-${position}`, items });
      n += items.length;
    };
    socket.on("close", () => sockets.delete(socket));
    socket.on("message", (data) => {
      const frame = JSON.parse(data);
      if (frame.type === "hello") {
        hello = frame;
        for (const other of sockets) if (other.session === hello.session) other.close(4409, "replaced");
        socket.session = hello.session;
        sockets.add(socket);
        const can = Object.fromEntries(hello.channels.map((channel) => [channel, ["read", "input"]]));
        const resumed = hello.cursor !== null;
        position = resumed ? Number(hello.cursor.slice(3)) : 0;
        send({ type: "ready", conn: "c1", sub: hello.token, resumed, cursor: `at-${position}`, can, expiresIn: 3600, pingMs: 25_000, maxFrame: 32_768, window: 512 });
        if (!resumed) {
          const agents = [
            { id: "guide", label: "Guide", role: "guide" },
            { id: "storyteller", label: "Storyteller", role: "character" },
          ];
          send({ type: "state", part: 1, parts: 1, room: { phase: "", agents }, captions: [], runs: [] });
        }
        while (entries.slice(position).some(visible)) socket.feed();
        send({ type: "caught_up", cursor: `at-${position}` });
      } else if (frame.type === "input") input(frame, hello.token, send);
      else if (frame.type === "cancel") {
        const run = runs.get(frame.run);
        const canceled = run !== undefined && !run.ended;
        if (canceled) end(run, { type: "run_canceled", reason: "canceled_by_user" });
        send({ type: "done", ref: frame.ref, canceled, status: "canceled" });
      }
    });
  });

  function input(frame, sub, send) {
    const known = inputs.get(frame.id);
    if (known !== undefined) return send({ type: "accepted", ...known, duplicate: true });
    const code = refuse.shift();
    if (code !== undefined) return send({ type: "error", ref: frame.id, code, message: "", ...(code === "unavailable" ? { retryMs: 1_500 } : {}), fatal: false });
    const agent = frame.agents?.[0] ?? "guide";
    if (answers[agent] === undefined) return send({ type: "error", ref: frame.id, code: "agent_unknown", message: "", fatal: false });
    const audience = frame.channel === "public" ? {} : { disclosure: { kind: "participants", participantIds: [sub] } };
    const open = [...runs.values()].find((run) => run.channel === frame.channel && !run.ended);
    let run = open?.waiting ? open : undefined;
    if (run === undefined) {
      if (open !== undefined) end(open, { type: "run_canceled", reason: "superseded_by_new_input" });
      run = { id: `r${runs.size}`, channel: frame.channel, agent, attempt: 0, audience, ended: false };
      runs.set(run.id, run);
    }
    const state = run.waiting ? "continued" : "started";
    run.waiting = false;
    run.attempt++;
    const body = { speaker: { kind: "participant", id: sub }, text: frame.text, modality: frame.modality, agent: run.agent, state };
    append({ channel: frame.channel, kind: "input", run: run.id, inputId: frame.id, by: sub, ...audience, body });
    const receipt = { id: frame.id, entry: entries.at(-1).id, run: run.id, at: entries.at(-1).at, state };
    inputs.set(frame.id, receipt);
    send({ type: "accepted", ...receipt, duplicate: false });
    void drive(run, state === "continued" ? "" : frame.text);
  }

  await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
  return {
    url: `http://127.0.0.1:${http.address().port}/?key=fake`,
    /** Refuses the next inputs with these codes. */
    refuse: (...codes) => (refuse = codes),
    /** Closes every connection with a code. */
    drop: (code) => [...sockets].forEach((socket) => socket.close(code, "test")),
    /** Writes the items of a frame to everybody with a number missing. */
    gap: () => [...sockets].forEach((socket) => socket.send(JSON.stringify({ type: "events", n: 9_999, cursor: "at-0", items: [] }))),
    close: () => {
      for (const socket of server.clients) socket.terminate();
      http.close();
    },
  };
}

if (process.argv[1] === new URL(import.meta.url).pathname) console.log((await startFake()).url);
