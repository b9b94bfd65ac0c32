// What the browser tests share: a chromium of its own, tabs, and the words to read and write on the page.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const flags = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Where screenshots go. */
export const shots = join(process.env.PARLEY_WORK ?? tmpdir(), "shots");

/** Starts a browser with an empty profile; `close` ends it and removes the profile. All its tabs are one window's. */
export async function openBrowser() {
  const profile = await mkdtemp(join(tmpdir(), "parley-chromium-"));
  const context = await chromium.launchPersistentContext(profile, {
    executablePath: "/usr/bin/chromium",
    headless: true,
    viewport: { width: 1100, height: 760 },
    args: flags,
  });
  const problems = [];
  return {
    context,
    /** Errors of scripts and refusals of the content security policy, from all tabs. */
    problems,
    async tab(url) {
      const page = await context.newPage();
      page.setDefaultTimeout(30_000);
      page.on("pageerror", (error) => problems.push(String(error)));
      page.on("console", (message) => {
        if (message.type() === "error" && /Content Security Policy/i.test(message.text())) problems.push(message.text());
      });
      await page.goto(url);
      await live(page);
      return page;
    },
    async close() {
      await context.close();
      await rm(profile, { recursive: true, force: true });
    },
  };
}

/** Waits until the page is connected and has caught up. */
export async function live(page) {
  await page.waitForSelector("body[data-phase=live]");
}

/** Types a text and sends it by the keyboard. */
export async function ask(page, text) {
  await page.getByRole("textbox").fill(text);
  await page.getByRole("textbox").press("Enter");
}

/** The visible messages of the conversation in view: kind, who, who may see it, text, how it stands. */
export function messages(page) {
  return page.locator("section:not([hidden]) .message:not([hidden])").evaluateAll((rows) =>
    rows.map((row) => ({
      kind: ["agent", "mine", "other"].find((kind) => row.classList.contains(kind)),
      who: row.querySelector(".name").textContent,
      audience: row.querySelector(".audience")?.lastChild.textContent,
      text: row.querySelector(".text").textContent,
      status: row.dataset.status ?? "pending",
    })),
  );
}

/** The text so far of the answer below the last input; several outputs are joined by newlines. */
export async function answerSoFar(page) {
  const shown = await messages(page);
  const from = shown.findLastIndex((message) => message.kind !== "agent");
  return shown.slice(from + 1).map((message) => message.text).join("\n");
}

/** The text of the answer below the last input, once it is whole. */
export async function answer(page) {
  await page.waitForFunction(() => {
    const panel = document.querySelector("section:not([hidden])");
    const last = [...panel.querySelectorAll(".message:not([hidden])")].at(-1);
    return panel.dataset.running !== "active" && last?.classList.contains("agent") && last.dataset.status === "closed";
  });
  return await answerSoFar(page);
}

/** A line or note of the conversation in view with this text; the announcements for screen readers have it too. */
export function line(page, text) {
  return page.locator("section:not([hidden])").getByText(text);
}

/** Who the tab says its person is. */
export async function who(page) {
  return await page.locator("#who").textContent();
}
