// The page against the real server, in the way of a new user.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answer, answerSoFar, ask, line, live, messages, openBrowser, shots, who } from "./browser.mjs";

let browser;
let server;
let url;

/** Starts the server and answers the address that it prints. */
async function startServer(address) {
  server = spawn(process.env.PARLEY_BINARY, ["dev", "--addr", address, "--data", join(process.env.PARLEY_WORK, "data")], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  return await new Promise((resolve, reject) => {
    const read = (chunk) => {
      output += chunk;
      const found = /http:\/\/\S+\/\?key=[^\s"]+/.exec(output);
      if (found) resolve(found[0]);
    };
    server.stdout.on("data", read);
    server.stderr.on("data", read);
    server.on("exit", (code) => reject(new Error(`the server ended with ${code}: ${output}`)));
  });
}

/** The texts of messages. */
const texts = (shown) => shown.map((message) => message.text);

/** Ends the server, by a signal that it can or cannot answer. */
async function endServer(signal) {
  if (server === undefined || server.exitCode !== null) return;
  const ended = new Promise((resolve) => server.once("exit", resolve));
  server.kill(signal);
  await ended;
}

before(async () => {
  url = await startServer("127.0.0.1:0");
  browser = await openBrowser();
});
after(async () => {
  await browser?.close();
  await endServer("SIGTERM");
});

/** Asks the slow agent for a text that streams for some seconds and waits until part of it is there. */
async function askForStory(page) {
  await ask(page, "@storyteller Tell me about the clock");
  const open = page.locator(".message.agent[data-status=open]").last();
  await page.waitForFunction((row) => row.querySelector(".text").textContent.length > 40, await open.elementHandle());
  return await answerSoFar(page);
}

test("a new user asks a suggested question and reads an answer that names its rule", async () => {
  const page = await browser.tab(url);
  await page.screenshot({ path: join(shots, "desktop-welcome.png") });
  await page.getByRole("button", { name: "When may I bear off?" }).click();
  const text = await answer(page);
  assert.match(text, /home board/i);
  const shown = await messages(page);
  assert.deepEqual(shown.map((m) => m.audience), shown.map(() => "Everyone in this room"));
  assert.equal(shown[0].who, "You");
  assert.ok((await page.locator(".agent .cite").count()) > 0, "the answer cites a rule");
  assert.match(await page.locator("#announcer").textContent(), /home board/i, "the finished answer is announced");
  await page.screenshot({ path: join(shots, "desktop-answer.png") });
  await page.close();
});

test("a reload in mid-answer loses and doubles nothing, and the person stays the same", async () => {
  const page = await browser.tab(url);
  const me = await who(page);
  const part = await askForStory(page);
  await page.screenshot({ path: join(shots, "desktop-streaming.png") });
  await page.reload();
  await live(page);
  assert.equal(await who(page), me);
  const whole = await answer(page);
  assert.ok(whole.startsWith(part.trimEnd()), "what was read before the reload is still there");
  const other = await browser.tab(url);
  assert.equal(await answer(other), whole, "somebody who never reloaded reads the same");
  assert.deepEqual(await messages(page).then(texts), await messages(other).then(texts));
  assert.equal(whole.split("seven minutes late together").length, 2, "nothing is told twice");
  await page.screenshot({ path: join(shots, "desktop-after-reload.png") });
  await page.close();
  await other.close();
});

test("two tabs are two people: they share the public conversation and not the private ones", async () => {
  const first = await browser.tab(url);
  const second = await browser.tab(url);
  assert.notEqual(await who(first), await who(second));
  await ask(first, "What is a gammon?");
  await answer(first);
  await line(second, "What is a gammon?").last().waitFor();
  const heard = (await messages(second)).findLast((m) => m.text === "What is a gammon?");
  assert.equal(heard.who, await who(first));
  await first.getByRole("tab", { name: "Only you" }).click();
  await ask(first, "What happens on the bar?");
  await answer(first);
  assert.deepEqual([...new Set((await messages(first)).map((m) => m.audience))], ["Only you"]);
  await first.screenshot({ path: join(shots, "desktop-private.png") });
  await second.getByRole("tab", { name: "Only you" }).click();
  await second.reload();
  await live(second);
  await second.getByRole("tab", { name: "Only you" }).click();
  assert.deepEqual(await messages(second), []);
  assert.ok(!(await second.content()).includes("What happens on the bar?"));
  await first.close();
  await second.close();
});

test("Stop ends one's own answer", async () => {
  const page = await browser.tab(url);
  await askForStory(page);
  await page.getByRole("button", { name: "Stop" }).click();
  await line(page, "Stopped.").last().waitFor();
  assert.equal((await messages(page)).at(-1).status, "interrupted");
  await page.close();
});

test("an answer goes to the agent that asked, not to the one who answers by default", async () => {
  const page = await browser.tab(url);
  await page.getByRole("tab", { name: "Only you" }).click();
  await ask(page, "@storyteller Hello");
  await page.getByRole("textbox", { name: "Your answer to Storyteller" }).waitFor();
  assert.match(await answer(page), /Which one would you like to hear\?$/);
  await ask(page, "The one of the clock");
  assert.match(await answer(page), /ran seven minutes late/);
  await page.close();
});

test("a question of somebody else waits for its turn, and its answer says what it answers", async () => {
  const first = await browser.tab(url);
  const second = await browser.tab(url);
  await askForStory(first);
  await ask(second, "What is a gammon?");
  await line(second, "Waits until the answer before it has ended.").waitFor();
  await answer(second);
  assert.equal(await second.locator("#panel-public .reply").last().textContent(), "To you: What is a gammon?");
  await second.screenshot({ path: join(shots, "desktop-queued.png") });
  await first.close();
  await second.close();
});

test("a question that nobody answers does not keep the next person waiting", async () => {
  const gone = await browser.tab(url);
  await ask(gone, "Who is the queen of France?");
  await gone.getByRole("textbox", { name: "Your answer to Rules guide" }).waitFor();
  await gone.close();
  const page = await browser.tab(url);
  await ask(page, "When may I bear off?");
  assert.match(await answer(page), /home board/i);
  await page.close();
});

test("everything works by keyboard alone", async () => {
  const page = await browser.tab(url);
  await page.locator(".skip").focus();
  await page.keyboard.press("Tab");
  for (let i = 0; i < 10 && (await page.evaluate(() => document.activeElement.id)) !== "tab-public"; i++) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.press("ArrowRight");
  assert.equal(await page.evaluate(() => document.activeElement.id), "tab-private");
  for (let i = 0; i < 20 && (await page.evaluate(() => document.activeElement.id)) !== "text"; i++) {
    await page.keyboard.press("Tab");
  }
  await page.keyboard.type("When may I bear off?");
  await page.keyboard.press("Enter");
  assert.match(await answer(page), /home board/i);
  await page.close();
});

test("a phone shows everything without scrolling sideways, light and dark", async () => {
  const page = await browser.tab(url);
  await page.setViewportSize({ width: 360, height: 700 });
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    for (const tab of ["Only you", "Everyone"]) {
      await page.getByRole("tab", { name: tab }).click();
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      assert.ok(width <= 360, `${tab}, ${colorScheme}: ${width} px wide`);
      await page.screenshot({ path: join(shots, `phone-${colorScheme}-${tab === "Everyone" ? "public" : "private"}.png`) });
    }
  }
  await page.close();
});

test("a server that is killed in mid-answer and comes back finishes the answer on the same page", async () => {
  const page = await browser.tab(url);
  await askForStory(page);
  await endServer("SIGKILL");
  await page.waitForFunction(() => document.body.dataset.phase !== "live");
  await startServer(new URL(url).host);
  await live(page);
  const whole = await answer(page);
  const other = await browser.tab(url);
  assert.equal(await answer(other), whole);
  await page.close();
  await other.close();
});

test("no script failed and the content security policy refused nothing", () => {
  assert.deepEqual(browser.problems, []);
});
