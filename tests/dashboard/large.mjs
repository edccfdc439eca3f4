// Tests that 10,000 apps and 100,000 tasks do not freeze the page, and that errors are shown where
// they happen. Also covers states that are hard to create with a real daemon: members of
// Kubernetes, and a shadow with differing answers.
//
// DIST: the folder of the built dashboard.

import assert from "node:assert/strict";
import { accessible, act, open, withPage } from "./browser.mjs";
import { APPS, HOSTILE, TASKS_OF_FIRST, start } from "./standin.mjs";

const daemon = await start(process.env.DIST);
try {
  await withPage(daemon.origin, {}, async (page) => {
    // The longest time in which the page did not respond.
    await page.evaluate(() => {
      window.longest = 0;
      let last = performance.now();
      const beat = () => {
        const now = performance.now();
        window.longest = Math.max(window.longest, now - last);
        last = now;
        setTimeout(beat, 0);
      };
      beat();
    });
    // The plots of a stand-in with one series, and the map of its agents.
    await page.getByRole("figure", { name: "Tasks", exact: true }).locator("canvas").waitFor();
    await page.getByRole("figure", { name: "Memory of the daemon" }).getByText("No values yet.").waitFor();
    const map = page.getByRole("region", { name: "Agents by use" });
    assert.equal(await map.getByRole("listitem").count(), 1000);
    assert.match(await map.getByRole("link", { name: /^host-/ }).first().getAttribute("aria-label"), /^host-2999 100 %: cpus 2,999 of 3,000$/);

    await open(page, "Apps");
    const list = page.getByRole("table", { name: "Apps and groups" });
    // The table has a row for each app and for each of the 50 groups, and a header.
    await list.waitFor();
    assert.equal(await list.getAttribute("aria-rowcount"), String(APPS + 50 + 1));
    const inPage = async (table) => await table.getByRole("row").count();
    assert.ok((await inPage(list)) < 60, "only the rows in view are in the page");

    await list.locator(".scroll").evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await list.getByRole("link", { name: "service-9999" }).or(list.getByRole("link", { name: "service-9959" })).first().waitFor();
    await page.getByLabel("Filter apps by id").fill("service-1234");
    await list.getByRole("link", { name: "service-1234" }).waitFor();
    await page.getByLabel("Filter apps by id").fill("");

    await page.goto(`${daemon.origin}/ui/#/apps/team-0/service-0`);
    const tasks = page.getByRole("table", { name: "Tasks" });
    await tasks.waitFor();
    assert.equal(await tasks.getAttribute("aria-rowcount"), String(TASKS_OF_FIRST + 1));
    assert.ok((await inPage(tasks)) < 60, "only the rows in view are in the page");
    await tasks.locator(".scroll").evaluate((box) => box.scrollTo(0, box.scrollHeight));
    await tasks.getByText(`${TASKS_OF_FIRST - 1}._app.1`).waitFor();
    await tasks.getByRole("button", { name: "Host" }).click();
    await tasks.locator(".scroll").evaluate((box) => box.scrollTo(0, 0));
    await tasks.getByRole("link", { name: /^host-0:/ }).first().waitFor();

    // All apps and tasks are searched.
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").getByRole("combobox").fill("service-9876");
    await page.getByRole("option").filter({ hasText: "/service-9876" }).waitFor();
    await page.getByRole("dialog").getByRole("combobox").fill("instance-77777");
    await page.getByRole("option").filter({ hasText: "instance-77777" }).waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    console.log(JSON.stringify({ longest_pause_ms: Math.round(await page.evaluate(() => window.longest)) }));

    // A part that fails is marked; the others are still shown.
    await open(page, "Apps");
    daemon.state.queue = "failing";
    await page.getByRole("region", { name: "Waiting" }).getByText("Error 503: the store is away").waitFor();
    await list.getByRole("button", { name: /team-0/ }).waitFor();
    daemon.state.queue = "slow";
    await page.getByRole("region", { name: "Waiting" }).getByText("no answer within 20 s").waitFor({ timeout: 60_000 });
    daemon.state.queue = "delayed";
    const waiting = page.getByRole("region", { name: "Waiting" });
    // The next request follows half a minute after one that had no answer.
    await waiting.getByRole("button", { name: "Launch now", exact: true }).waitFor({ timeout: 60_000 });
    assert.match(await act(page, waiting, "Launch now"), /\/failing is launched without its delay/);
    await waiting.getByText("No instance is waiting.").waitFor();

    // Kubernetes.
    await open(page, "Kubernetes");
    const blue = page.getByRole("region", { name: "kubernetes.blue", exact: true });
    await blue.getByText("no offer has 64 CPUs").waitFor();
    await blue.getByText("1 of 2 running").waitFor();
    await blue.getByRole("cell", { name: "node-0" }).waitFor();
    await blue.getByRole("link", { name: /configuration for kubectl/ }).waitFor();
    assert.match(await act(page, blue, "Scale agent", 3), /is scaled to 3/);
    assert.equal(daemon.state.scaled, "agent/scale/3");
    await accessible(page, "kubernetes");

    // A shadow with differing answers.
    await open(page, "Plugins");
    await page.getByRole("link", { name: "attributes" }).click();
    await page.getByText("uploads = true", { exact: true }).waitFor();
    assert.equal(await page.locator("input[type=file]").count(), 0);
    const shadow = page.getByRole("region", { name: "Rollout of attributes" });
    await shadow.getByRole("cell", { name: "rack of <b>S1</b>" }).waitFor();
    await shadow.getByRole("cell", { name: "no\\u001b[31m" }).waitFor();
    await accessible(page, "rollout");
    assert.match(await act(page, shadow, "Promote"), /2\.0\.0 is promoted/);
    await shadow.waitFor({ state: "detached" });

    // Markup, colours of terminals and marks of direction stay text on every page.
    daemon.state.hostile = true;
    daemon.send();
    const name = encodeURIComponent(HOSTILE);
    const visible = "<img src=x onerror=alert(1)><script>alert(2)</script>\\u001b[31m\\u202eevil";
    for (const [address, place] of [
      ["overview", (at) => at.getByRole("region", { name: "Problems (1)" })],
      [`apps/${name}`, (at) => at.getByRole("region", { name: `/${visible}`, exact: true }).getByRole("alert")],
      [`apps/${name}`, (at) => at.getByRole("table", { name: "Tasks", exact: true })],
      [`apps/${name}`, (at) => at.getByRole("table", { name: "Ended tasks" })],
      [`apps/${name}`, (at) => at.getByRole("region", { name: "Deployment", exact: true })],
      [`apps/${name}`, (at) => at.getByRole("region", { name: "What happened" })],
      ["deployments/d-1", (at) => at.getByRole("region", { name: "Steps" })],
      [`agents/${name}`, (at) => at.getByRole("region", { name: "Reservations" })],
      ["cluster", (at) => at.getByRole("table", { name: "Agents" })],
      ["events", (at) => at.getByRole("table", { name: "Events" })],
    ]) {
      await page.goto(`${daemon.origin}/ui/#/${address}`);
      await place(page).getByText("\\u202eevil").first().waitFor();
      assert.equal(await page.locator("img[src=x], main script").count(), 0, address);
      assert.ok(!/[\u001b\u202e]/.test(await page.evaluate(() => document.body.innerText)), address);
    }
    await page.goto(`${daemon.origin}/ui/#/apps/${name}`);
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByRole("region", { name: "Placement" }).getByText(`${visible}`).first().waitFor();
    await page.getByLabel("Compare with a version").selectOption({ index: 1 });
    await page.locator(".difference .added").getByText("\\u202eevil").waitFor();
    await page.getByRole("button", { name: "Edit" }).click();
    assert.ok((await page.getByLabel("Definition as JSON").inputValue()).includes("\\u202eevil"));
    await page.keyboard.press("Escape");
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").getByRole("combobox").fill("onerror");
    await page.getByRole("option").filter({ hasText: "\\u202eevil" }).first().waitFor();
    await page.keyboard.press("Escape");
    await accessible(page, "hostile texts");
    daemon.state.hostile = false;

    // A wrong password, another version of the daemon, and another version of the API.
    daemon.state.locked = true;
    daemon.drop();
    await page.getByText("The daemon rejects the user or the password (401)").waitFor();
    daemon.state.locked = false;
    daemon.state.version = "0.2.0";
    await page.getByText("The daemon rejects the user or the password (401)").waitFor({ state: "detached" });
    await page.getByText("The daemon was replaced: version 0.2.0 instead of 0.1.0.").waitFor();
    daemon.state.api = 2;
    daemon.send();
    await page.getByText("replaced by one with another API").waitFor();
    daemon.state.api = 1;
    await page.getByRole("button", { name: "Reload the page" }).click();
    await page.getByText("replaced by one with another API").waitFor({ state: "detached" });
  });
} finally {
  daemon.stop();
}
