// Debian's Chromium, driven by Playwright, with a page that may send requests only to the daemon.
//
// TRANSOM_NODE_PACKAGES: the folder with the packages of package.json.

import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(join(process.env.TRANSOM_NODE_PACKAGES, "package.json"));
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Runs `work` with a page at `/ui/` of this origin. Errors in the page and requests elsewhere fail the test. */
export async function withPage(origin, options, work) {
  const dir = mkdtempSync(join(tmpdir(), "transom-browser-"));
  const context = await chromium.launchPersistentContext(dir, {
    executablePath: process.env.TRANSOM_CHROMIUM ?? "/usr/bin/chromium",
    headless: true,
    args: FLAGS,
    viewport: { width: 1360, height: 860 },
    httpCredentials: options.credentials,
    colorScheme: options.dark ? "dark" : "light",
  });
  const wrong = [];
  try {
    const page = context.pages()[0] ?? (await context.newPage());
    page.setDefaultTimeout(30_000);
    page.on("pageerror", (error) => wrong.push(`error in the page: ${error.stack ?? error}`));
    page.on("dialog", (dialog) => {
      wrong.push(`a script opened a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on("console", (message) => {
      if (/Content.Security.Policy|Trusted/i.test(message.text())) wrong.push(message.text());
    });
    page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && url.protocol !== "data:") wrong.push(`a request to ${url.origin}`);
    });
    await page.goto(`${origin}/`);
    await work(page);
    assert.deepEqual(wrong, []);
  } finally {
    await context.close();
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Opens a page of the dashboard by its link. */
export async function open(page, title) {
  await page.getByRole("navigation").getByRole("link", { name: title }).click();
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}

/** Fails with the serious findings of axe. */
export async function accessible(page, where) {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
  const serious = violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
  assert.deepEqual(serious, [], `axe on ${where}`);
}

/** Makes the change behind a button, and returns what the page says about it. */
export async function act(page, scope, label, fill) {
  const notices = page.locator(".notices .notice");
  await page.evaluate(() => document.querySelectorAll(".notices button").forEach((button) => button.click()));
  await notices.first().waitFor({ state: "detached" });
  await scope.getByRole("button", { name: label, exact: true }).first().click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  if (fill !== undefined) await dialog.getByRole(typeof fill === "number" ? "spinbutton" : "textbox").fill(String(fill));
  await dialog.getByRole("button", { name: label, exact: true }).click();
  await notices.first().waitFor();
  return (await notices.first().textContent()) ?? "";
}

/** Writes a screenshot for the manual, where somebody wants them. */
export async function screenshot(page, name) {
  const dir = process.env.TRANSOM_SCREENSHOTS;
  if (!dir) return;
  await page.evaluate(() => {
    document.querySelectorAll(".notices button").forEach((button) => button.click());
    scrollTo(0, 0);
  });
  await page.locator(".notices .notice").first().waitFor({ state: "detached" });
  await page.screenshot({ path: join(dir, `${name}.png`) });
}

/** Waits until `check` neither throws nor returns false. */
export async function eventually(what, check) {
  const deadline = Date.now() + 60_000;
  for (;;) {
    let last;
    try {
      if ((await check()) !== false) return;
    } catch (error) {
      last = error;
    }
    if (Date.now() > deadline) throw new Error(`timed out waiting for ${what}: ${last ?? "not yet"}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
