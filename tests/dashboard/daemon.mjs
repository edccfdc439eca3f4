// Tests every page and the main actions against a real daemon, which is killed and started again.
//
// Variables: ADMIN and WORKFLOW (origins of the ports), UPLOADS (a folder with files of plugins).
// To have the daemon killed or started, the test prints `kill` or `start` and reads a line when
// that is done.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { accessible, act, eventually, open, screenshot, withPage } from "./browser.mjs";

const { ADMIN: admin, WORKFLOW: workflow, UPLOADS: uploads } = process.env;
const apps = `${admin}/v1/services/apps`;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(what) {
  console.log(what);
  assert.equal((await lines.next()).value, "done");
}

async function send(method, url, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(url, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${url}: ${answer.status} ${text}`);
  return /^[[{]/.test(text) ? JSON.parse(text) : text;
}

const SCRIPT = "<script>alert('name')</script><img src=x onerror=alert(1)>";
const ANSI = "\u001b[31mred\u001b[0m\u202eevil";
const hello = "echo hello from the task; while :; do sleep 1; done";
for (const app of [
  { id: "/shop/web", cmd: hello, cpus: 0.1, mem: 32, instances: 2 },
  { id: "/shop/db/main", cmd: hello, cpus: 0.1, mem: 64, instances: 1 },
  { id: "/waits", cmd: "sleep 1000", cpus: 64, mem: 32, instances: 1, constraints: [["rack", "CLUSTER", SCRIPT]] },
  { id: "/named", cmd: `echo '${SCRIPT}${ANSI}'; sleep 1000`, cpus: 0.1, mem: 32, labels: { owner: SCRIPT } },
]) {
  await send("POST", `${apps}/v2/apps`, app);
}
const job = (id, command, more = {}) => send("POST", `${workflow}/v0/queue_command`, { workflow_task_id: id, command: ["/bin/sh", "-c", command], ...more });

await withPage(admin, {}, async (page) => {
  assert.equal(new URL(page.url()).pathname, "/ui/");
  const status = await fetch(`${admin}/ui/`);
  assert.match(status.headers.get("content-security-policy"), /default-src 'none'/);
  assert.equal(status.headers.get("x-frame-options"), "DENY");

  // Overview.
  for (const service of ["apps", "discovery", "workflow"]) {
    await page.getByRole("region", { name: service, exact: true }).getByText("ready").waitFor();
  }
  await page.getByRole("region", { name: "Problems" }).waitFor();
  await accessible(page, "overview");

  // Apps.
  await open(page, "Apps");
  const list = page.getByRole("table", { name: "Apps and groups" });
  await list.getByRole("link", { name: "web" }).waitFor();
  await page.getByText(/cpus: 3 of 3 offers have too few CPUs|constraints: \d of \d offers come from agents that/).first().waitFor();
  await page.getByText("Condition by condition").first().click();
  await page.getByText(/failed on \d of \d offers/).first().waitFor();
  await accessible(page, "apps");
  await list.getByRole("button", { name: /shop/ }).click();
  await list.getByRole("link", { name: "web" }).waitFor({ state: "detached" });
  await page.getByLabel("Filter apps by id").fill("web");
  await list.getByRole("link", { name: "web" }).click();
  const detail = page.getByRole("region", { name: "/shop/web", exact: true });
  await detail.getByText("2 of 2 running").waitFor();
  await page.getByLabel("Filter apps by id").fill("");
  await screenshot(page, "dashboard-apps");

  assert.match(await act(page, detail, "Scale", 3), /scaled to 3 \(deployment /);
  await detail.getByText("3 of 3 running").waitFor();
  await detail.getByRole("button", { name: /^Log of / }).first().click();
  await detail.locator("pre").getByText("hello from the task").waitFor();
  await accessible(page, "app with its log");
  const before = (await send("GET", `${apps}/v2/tasks`)).tasks.filter(({ appId }) => appId === "/shop/web");
  assert.match(await act(page, detail, "Kill"), /is being killed/);
  await eventually("another task", async () => {
    const { tasks } = await send("GET", `${apps}/v2/tasks`);
    const now = tasks.filter(({ appId, state }) => appId === "/shop/web" && state === "TASK_RUNNING");
    return now.length === 3 && now.some(({ id }) => before.every((old) => old.id !== id));
  });
  assert.match(await act(page, detail, "Restart"), /restarts \(deployment /);
  await eventually("the restart to end", async () => {
    const running = await send("GET", `${apps}/v2/deployments`);
    return running.every(({ affectedApps }) => !affectedApps.includes("/shop/web"));
  });
  assert.match(await act(page, detail, "Suspend"), /scaled to 0/);
  await detail.getByText("0 of 0 running").waitFor();
  assert.match(await act(page, detail, "Delete"), /is being deleted/);
  await list.getByRole("link", { name: "web" }).waitFor({ state: "detached" });

  // The reason for a pending instance or a rejected change is shown.
  await page.getByRole("region", { name: "Deployments" }).getByText("/waits", { exact: true }).waitFor();
  await page.goto(`${admin}/ui/#/apps/waits`);
  const waits = page.getByRole("region", { name: "/waits", exact: true });
  assert.match(await act(page, waits, "Scale", 2), /Scale failed \(409\)/);
  assert.match(await act(page, page.getByRole("region", { name: "Deployments" }), "Roll back"), /is rolled back/);
  await list.getByRole("link", { name: "waits" }).waitFor({ state: "detached" });

  // Markup and escape sequences are text.
  await page.goto(`${admin}/ui/#/apps/named`);
  const named = page.getByRole("region", { name: "/named", exact: true });
  await named.getByText("<script>alert('name')</script>").first().waitFor();
  await named.getByRole("button", { name: /^Log of / }).first().click();
  const log = named.locator("pre");
  await log.getByText("\\u001b[31mred\\u001b[0m\\u202eevil").waitFor();
  assert.equal(await page.locator("img[src=x]").count(), 0);

  // The output of each container of a pod is shown separately.
  const container = (name) => ({
    name,
    exec: { command: { shell: `echo output of ${name}; while :; do sleep 1; done` } },
    resources: { cpus: 0.1, mem: 32 },
  });
  await send("POST", `${apps}/v2/pods`, { id: "/pair", containers: [container("one"), container("two")], networks: [{ mode: "host" }] });
  await open(page, "Apps");
  const pods = page.getByRole("region", { name: "Pods" });
  await pods.getByRole("button", { name: "/pair" }).click();
  const containers = pods.getByRole("table", { name: "Containers" });
  for (const name of ["two", "one"]) {
    await containers.getByRole("button", { name: new RegExp(`^Log of pair.*\\.${name}\\.`) }).click();
    await pods.locator("pre").getByText(`output of ${name}`, { exact: true }).waitFor();
  }
  await accessible(page, "pod with the log of a container");
  assert.match(await act(page, pods, "Delete"), /\/pair is being deleted/);

  // Events.
  await open(page, "Events");
  await page.getByText("live", { exact: true }).waitFor();
  await page.evaluate(async (path) => {
    const headers = { "Content-Type": "application/json" };
    await fetch(path, { method: "PUT", headers, body: JSON.stringify({ instances: 2 }) });
  }, "/v1/services/apps/v2/apps/shop/db/main");
  await page.getByRole("button", { name: "api_post_event" }).first().waitFor();
  await page.getByLabel("Kind of events").selectOption("tasks");
  await page.getByRole("button", { name: "status_update_event" }).first().click();
  await page.getByRole("region", { name: "status_update_event" }).getByText('"taskStatus"').waitFor();
  await page.getByRole("button", { name: "api_post_event" }).waitFor({ state: "detached" });
  await accessible(page, "events");

  // Discovery.
  await open(page, "Discovery");
  await page.getByLabel("Name to look up").fill("main.db.shop.marathon.mesos");
  await page.keyboard.press("Enter");
  await page.getByRole("cell", { name: /^127\.0\.0\./ }).first().waitFor();
  await page.getByLabel("Name to look up").fill("no.such.mesos");
  await page.keyboard.press("Enter");
  await page.getByText("no.such.mesos: no such name").waitFor();
  await page.getByRole("button", { name: "List all records" }).click();
  await page.getByRole("table", { name: "Records" }).getByText("main.db.shop.marathon.mesos.").first().waitFor();
  await accessible(page, "discovery");
  await screenshot(page, "dashboard-discovery");

  // Workflow.
  await job("runs", "echo output of the job; sleep 1000");
  await job("waits", "true", { cpus: 64 });
  await open(page, "Workflow");
  await page.getByRole("table", { name: "Queue" }).getByTitle("waits").waitFor();
  const jobs = page.getByRole("table", { name: "Jobs" });
  await jobs.getByRole("link", { name: "runs" }).click();
  await page.getByText("output of the job").waitFor();
  await accessible(page, "workflow");
  const row = jobs.getByRole("row").filter({ hasText: "runs" });
  assert.match(await act(page, row, "Kill"), /is being killed/);
  await row.getByText("killed").waitFor();

  // A job's name and output are text, too. The daemon rejects control characters and slashes in names, not marks of
  // direction.
  const tag = SCRIPT.replace("/", "");
  const name = `${tag}\u202eevil`;
  await job(name, `echo '${SCRIPT}${ANSI}'; sleep 1000`);
  await job(`waiting ${name}`, "true", { cpus: 64 });
  await page.getByRole("table", { name: "Queue" }).getByTitle(`waiting ${tag}\\u202eevil`).waitFor();
  const hostile = jobs.getByRole("row").filter({ hasText: tag }).filter({ hasText: "running" });
  await hostile.getByRole("link", { name: `${tag}\\u202eevil` }).click();
  const output = page.getByRole("region", { name: `Output of ${tag}\\u202eevil` });
  await output.locator("pre").getByText("\\u001b[31mred\\u001b[0m\\u202eevil").waitFor();
  assert.match(await act(page, hostile, "Kill"), /<script>.*\\u202eevil is being killed/);
  assert.equal(await page.locator("img[src=x]").count(), 0);

  // Cluster.
  await open(page, "Cluster");
  const agents = page.getByRole("table", { name: "Agents" });
  assert.equal(await agents.getAttribute("aria-rowcount"), "4");
  await page.getByLabel("Filter agents").fill("rack:r2");
  await eventually("one agent", async () => (await agents.getAttribute("aria-rowcount")) === "2");
  await page.getByLabel("Filter agents").fill("");
  await accessible(page, "cluster");
  await screenshot(page, "dashboard-cluster");

  // Kubernetes is not in this configuration.
  await open(page, "Kubernetes");
  await page.getByText("This daemon runs no Kubernetes").waitFor();
  await accessible(page, "kubernetes");

  // Plugins: a second version is admitted while the page is open, and then rolled back.
  await open(page, "Plugins");
  await page.getByRole("table", { name: "Plugins" }).getByRole("link", { name: "events" }).click();
  const plugin = page.getByRole("region", { name: "events", exact: true });
  await plugin.getByText("Calls per second").waitFor();
  await ask("plugin");
  const records = plugin.getByRole("table", { name: "Admission records" });
  await eventually("a second record", async () => (await records.getAttribute("aria-rowcount")) === "3");
  await accessible(page, "plugins");
  await screenshot(page, "dashboard-plugins");
  const old = records.getByRole("row").filter({ hasNotText: "No." }).last();
  assert.match(await act(page, old, "Roll back"), /was rolled back to record/);
  await eventually("a third record", async () => (await records.getAttribute("aria-rowcount")) === "4");

  // A plugin is replaced by its new file: chosen with a button, or dropped.
  const version = await plugin.getByText(/^\d+\.\d+\.\d+ \(/).first().textContent();
  const zone = page.getByRole("group", { name: "Replace a plugin" });
  const replaced = async (give, question, answer) => {
    await page.evaluate(() => document.querySelectorAll(".notices button").forEach((button) => button.click()));
    await give();
    const dialog = page.getByRole("dialog", { name: question });
    await dialog.getByText(answer.detail).waitFor();
    await dialog.getByRole("button", { name: "Upload" }).click();
    await page.locator(".notices .notice").getByText(answer.outcome).waitFor();
  };
  const choose = (...names) => () => zone.locator("input").setInputFiles(names.map((name) => `${uploads}/${name}`));
  await replaced(choose("good/events.wasm"), `Replace ${version.split(" ")[0]} of events?`, {
    detail: "The manifest is unchanged",
    outcome: /^events \d+\.\d+\.\d+ serves\.$/,
  });
  await eventually("a record of the new file", async () => (await records.getAttribute("aria-rowcount")) === "5");
  const drop = async (name) => {
    const bytes = [...readFileSync(`${uploads}/${name}`)];
    const files = await page.evaluateHandle((content) => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([new Uint8Array(content)], "events.wasm"));
      return transfer;
    }, bytes);
    await zone.dispatchEvent("dragover", { dataTransfer: files });
    await zone.dispatchEvent("drop", { dataTransfer: files });
  };
  await replaced(() => drop("bad/events.wasm"), /^Replace .* of events\?$/, {
    detail: "the old version keeps serving",
    outcome: /^events was rejected: .*does not compile.* still serves\.$/s,
  });
  await plugin.getByText(/^Refused: .*does not compile/).waitFor();
  await replaced(choose("new/mine.wasm", "new/mine.toml"), "Add the plugin mine?", {
    detail: "The grants of the new manifest apply after admission",
    outcome: /^mine \d+\.\d+\.\d+ serves\.$/,
  });
  await zone.locator("input").setInputFiles([`${uploads}/good/events.wasm`, `${uploads}/new/mine.toml`]);
  await page.locator(".notices .notice").getByText("files of several plugins, events and mine").waitFor();
  await accessible(page, "plugins with the drop zone");

  // The page can be used with the keyboard alone: the first stop leads to the content, and a dialog
  // keeps the focus and is closed with Escape.
  await page.goto(`${admin}/ui/#/plugins`);
  await page.reload();
  await page.getByRole("button", { name: "Scan directory" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to content");
  await page.keyboard.press("Enter");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  assert.ok(await page.evaluate(() => document.activeElement?.closest("dialog") !== null));
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });

  // The daemon is killed and started again.
  await open(page, "Overview");
  await ask("kill");
  await page.getByText("The daemon is not reachable").waitFor();
  await accessible(page, "overview without a daemon");
  await ask("start");
  await page.getByText("The daemon is not reachable").waitFor({ state: "detached" });
  await page.getByRole("region", { name: "apps", exact: true }).getByText("ready", { exact: true }).waitFor();
  await screenshot(page, "dashboard-overview");
});

await withPage(admin, { dark: true }, async (page) => {
  await page.getByRole("region", { name: "Problems" }).waitFor();
  await accessible(page, "overview in dark colours");
  await page.getByRole("button", { name: "Colours: auto" }).click();
  await page.getByRole("button", { name: "Colours: light" }).click();
  await page.getByRole("button", { name: "Colours: dark" }).waitFor();
  await open(page, "Apps");
  await page.getByRole("table", { name: "Apps and groups" }).waitFor();
  await accessible(page, "apps in dark colours");
  await screenshot(page, "dashboard-dark");
});

// The program can end although its input is still open.
process.stdin.destroy();
