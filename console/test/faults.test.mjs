// The page under faults that a sound server does not show: against the stand-in.
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { answer, ask, line, live, messages, openBrowser, shots } from "./browser.mjs";
import { startFake } from "./fake-server.mjs";

let browser;
before(async () => (browser = await openBrowser()));
after(async () => {
  await browser?.close();
});

/** Runs a test with a room and a tab of its own. */
function scene(name, run) {
  test(name, async () => {
    const fake = await startFake();
    try {
      const page = await browser.tab(fake.url);
      await run(page, fake);
      await page.close();
      assert.deepEqual(browser.problems, []);
    } finally {
      fake.close();
    }
  });
}

const story = /^Long before the doubling cube .* a lucky roll\.$/s;

scene("a connection that drops in mid-answer costs and doubles nothing", async (page, fake) => {
  await ask(page, "@storyteller Tell me a story");
  for (const code of [1012, 1011, 4420]) {
    await page.waitForTimeout(400);
    fake.drop(code);
  }
  const text = await answer(page);
  assert.match(text, story);
  assert.equal(text.split("ferrymen").length, 2);
});

scene("a frame with a missing number is not skipped: the page resumes", async (page, fake) => {
  await ask(page, "@storyteller Tell me a story");
  await page.waitForTimeout(600);
  fake.gap();
  await page.waitForSelector("body[data-phase=waiting]");
  assert.match(await answer(page), story);
});

scene("a new attempt takes the text of the one before away", async (page) => {
  await ask(page, "@storyteller crash in the middle");
  assert.match(await answer(page), story);
  const shown = await messages(page);
  assert.deepEqual(shown.map((m) => m.who), ["You", "Storyteller"]);
});

scene("refusals say what to do, keep the text, and can be taken up again", async (page, fake) => {
  fake.refuse("queue_full");
  await ask(page, "First");
  await line(page, "Not sent. Too many questions are waiting here.").waitFor();
  await page.screenshot({ path: join(shots, "refused.png") });
  await page.getByRole("button", { name: "Edit" }).click();
  assert.equal(await page.getByRole("textbox").inputValue(), "First");
  await page.keyboard.press("Enter");
  await answer(page);
  await ask(page, "@nobody Hello there");
  await line(page, "There is no agent of that name here.").waitFor();
  await page.getByRole("button", { name: "Discard" }).click();
  assert.deepEqual((await messages(page)).map((m) => m.who), ["You", "Guide"]);
});

scene("what the room cannot store now is sent again by itself", async (page, fake) => {
  fake.refuse("unavailable");
  await ask(page, "When may I bear off?");
  await line(page, "The room cannot store anything right now.").waitFor();
  await answer(page);
  assert.deepEqual((await messages(page)).map((m) => m.text).slice(0, 1), ["When may I bear off?"]);
});

scene("what was typed without a connection is sent when it is back, also after a reload", async (page, fake) => {
  await page.evaluate(() => {
    // A socket that never opens, for one load of the page.
    globalThis.WebSocket = class { send() {} close() {} };
  });
  fake.drop(1012);
  await page.waitForFunction(() => document.body.dataset.phase !== "live");
  await ask(page, "When may I bear off?");
  await line(page, "Sending…").waitFor();
  await page.reload();
  await live(page);
  await answer(page);
  assert.equal((await messages(page)).filter((m) => m.who === "You").length, 1);
});

scene("a failed, a stopped and a replaced answer say so; a question is asked back and answered", async (page) => {
  await ask(page, "Please fail");
  await line(page, "The answer could not be made.").waitFor();
  await ask(page, "@storyteller One");
  await page.locator(".message[data-status=open]").waitFor();
  await ask(page, "@storyteller Two");
  await line(page, "Set aside for a newer question.").waitFor();
  await page.locator(".message[data-status=open]").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await line(page, "Stopped.").waitFor();
  assert.equal(await page.getByRole("button", { name: "Stop" }).count(), 0);
  await ask(page, "which one, ask back");
  await line(page, "Guide waits for your answer.").waitFor();
  await page.getByRole("textbox", { name: "Your answer to Guide" }).waitFor();
  await ask(page, "Bearing off");
  await line(page, "highest point that has one").waitFor();
});

scene("closed and taken over: the page says why it stopped and offers what helps", async (page, fake) => {
  fake.drop(4409);
  await page.getByText("This conversation goes on in another tab.").waitFor();
  await page.getByRole("button", { name: "Connect" }).click();
  await live(page);
  fake.drop(4401);
  await page.getByText("Your sign-in is no longer valid.").waitFor();
  const before = await page.locator("#who").textContent();
  await page.getByRole("button", { name: "Go on as a new visitor" }).click();
  await page.waitForFunction((old) => document.getElementById("who").textContent !== old, before);
  await live(page);
  fake.drop(4410);
  await page.getByText("This room was closed.").waitFor();
});

scene("a duplicated tab is somebody new", async (page, fake) => {
  const storage = await page.evaluate(() => JSON.stringify(sessionStorage));
  const copy = await browser.context.newPage();
  await copy.addInitScript((stored) => {
    if (sessionStorage.length > 0) return;
    for (const [key, value] of Object.entries(JSON.parse(stored))) sessionStorage.setItem(key, value);
  }, storage);
  await copy.goto(fake.url);
  await live(copy);
  assert.notEqual(await copy.locator("#who").textContent(), await page.locator("#who").textContent());
  await live(page);
  await copy.close();
});

scene("text of people and models is never markup", async (page) => {
  const text = `<img src=x onerror="document.title='owned'"><b>bold</b> [not a rule!]`;
  await ask(page, text);
  await answer(page);
  assert.equal((await messages(page))[0].text, text);
  assert.equal(await page.title(), "Parley");
  assert.equal(await page.locator(".messages img, .messages b").count(), 0);
});

scene("a blank and an oversized text are stopped before they are sent", async (page) => {
  await ask(page, "   ");
  await page.getByText("Write something first.").waitFor();
  await ask(page, "é".repeat(4097));
  await page.getByText("The text is too long: 8194 bytes").waitFor();
  assert.deepEqual(await messages(page), []);
});
