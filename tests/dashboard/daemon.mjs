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
const hello = `echo hello from the task; printf '\\033[32mgreen\\033[0m\\n'; for line in $(seq 100); do echo line $line; done; while :; do sleep 1; done`;
for (const app of [
  { id: "/shop/web", cmd: hello, cpus: 0.1, mem: 32, instances: 2 },
  { id: "/shop/db/main", cmd: hello, cpus: 0.1, mem: 64, instances: 1 },
  { id: "/waits", cmd: "sleep 1000", cpus: 64, mem: 32, instances: 1, constraints: [["rack", "CLUSTER", SCRIPT]] },
  { id: "/crash", cmd: "echo about to die >&2; exit 3", cpus: 0.1, mem: 32 },
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
  for (const [service, state] of [["apps", "ready"], ["discovery", "ready"], ["workflow", "idle"]]) {
    await page.getByRole("group", { name: service, exact: true }).getByText(state, { exact: true }).waitFor();
  }
  await page.getByText("no job runs or waits").waitFor();
  await page.getByRole("region", { name: /^Problems/ }).waitFor();

  // The plots have axes and units, and show the values under the pointer.
  const { start, step, series } = await send("GET", `${admin}/v1/history`);
  assert.equal(step, 10);
  assert.ok(start > Date.now() / 1000 - 3700 && start < Date.now() / 1000 + 60);
  assert.equal(series.process_memory.unit, "bytes");
  const memory = page.getByRole("figure", { name: "Memory of the daemon" });
  await memory.locator("canvas").waitFor();
  await memory.getByText(/^\d+(\.\d)? MB$/).waitFor();
  await memory.locator(".u-over").hover();
  await memory.locator("figcaption").getByText(/^\d\d:\d\d:\d\d$/).waitFor();
  await accessible(page, "overview");

  // The map of agents leads to their pages.
  await page.getByRole("region", { name: "Agents by use" }).getByRole("link", { name: /^127\.0\.0\.1 \d+ %: cpus/ }).click();
  await page.getByRole("heading", { level: 1, name: "Agent" }).waitFor();
  await page.getByRole("region", { name: "127.0.0.1", exact: true }).getByText("rack").waitFor();
  await page.getByRole("table", { name: "Tasks of the agent" }).getByRole("link", { name: "/" }).first().waitFor();
  await accessible(page, "agent");

  // Apps.
  await open(page, "Apps");
  const list = page.getByRole("table", { name: "Apps and groups" });
  await list.getByRole("link", { name: "web" }).waitFor();
  await page.getByText(/cpus: 3 of 3 offers have too few CPUs|constraints: \d of \d offers come from agents that/).first().waitFor();
  // An app that waits for its delay has conditions that no offer was tested for.
  const tested = page.locator("details", { hasText: /failed on \d of \d offers/ }).first();
  await tested.getByText("Condition by condition").click();
  await tested.getByText(/failed on \d of \d offers/).first().waitFor();
  await accessible(page, "apps");
  await list.getByRole("button", { name: /shop/ }).click();
  await list.getByRole("link", { name: "web" }).waitFor({ state: "detached" });
  // Filters are in the address, and work after a reload.
  await page.getByRole("button", { name: "Only problems" }).click();
  await list.getByRole("link", { name: "main" }).waitFor({ state: "detached" });
  await list.getByRole("link", { name: "waits" }).waitFor();
  assert.match(page.url(), /#\/apps\?only=problems$/);
  await page.reload();
  await list.getByRole("link", { name: "waits" }).waitFor();
  assert.equal(await list.getByRole("link", { name: "main" }).count(), 0);
  await page.getByRole("button", { name: "Only problems" }).click();
  await page.getByLabel("Filter apps by label").fill(`owner=${SCRIPT}`);
  await eventually("one app with the label", async () => (await list.getAttribute("aria-rowcount")) === "2");
  await page.getByLabel("Filter apps by label").fill("");
  await page.getByRole("button", { name: "List", exact: true }).click();
  await list.getByRole("button", { name: "Memory" }).click();
  await list.getByRole("button", { name: "Memory" }).click();
  await eventually("the app with most memory first", async () => /^\/shop\/db\/main$/.test(await list.getByRole("link").first().textContent()));
  await page.getByRole("button", { name: "List", exact: true }).click();
  await screenshot(page, "dashboard-apps");

  await page.getByLabel("Filter apps by id").fill("web");
  await list.getByRole("link", { name: "web" }).click();
  await page.getByRole("heading", { level: 1, name: "App", exact: true }).waitFor();
  const detail = page.getByRole("region", { name: "/shop/web", exact: true });
  const tasks = page.getByRole("region", { name: "Tasks" });
  await detail.getByText("2 of 2 running").waitFor();

  assert.match(await act(page, detail, "Scale", 3), /scaled to 3 \(deployment /);
  await detail.getByText("3 of 3 running").waitFor();

  // The log opens at its end and follows; it can be searched, and saved completely.
  await tasks.getByRole("button", { name: /^Log of / }).first().click();
  await tasks.locator("pre").getByText("hello from the task").waitFor();
  assert.equal(await tasks.locator("pre span.fg2").first().textContent(), "green");
  const follows = tasks.getByRole("button", { name: "Follow" });
  assert.equal(await follows.getAttribute("aria-pressed"), "true");
  const box = tasks.locator("pre");
  await eventually("the end of the log", () => box.evaluate((pre) => pre.scrollHeight > pre.clientHeight && pre.scrollHeight - pre.scrollTop - pre.clientHeight < 60));
  await tasks.getByLabel("Search in the output").fill("FROM THE");
  await tasks.getByText("1 of 1").waitFor();
  await page.keyboard.press("Enter");
  assert.equal(await tasks.locator("mark.current").textContent(), "from the");
  await eventually("the log to stop following", async () => (await follows.getAttribute("aria-pressed")) === "false");
  await tasks.getByLabel("Search in the output").fill("");
  await tasks.getByRole("button", { name: "Wrap" }).click();
  const [saved] = await Promise.all([page.waitForEvent("download"), tasks.getByRole("button", { name: "Download" }).click()]);
  assert.match(saved.suggestedFilename(), /^shop_web\..*\.stdout\.txt$/);
  assert.match(readFileSync(await saved.path(), "utf8"), /^hello from the task\n.*\u001b\[32mgreen\u001b\[0m\n(line \d+\n)+/s);
  await accessible(page, "app with its log");

  // An edit is compared before it is sent; a version is compared and restored.
  await detail.getByRole("button", { name: "Edit" }).click();
  const editor = page.getByRole("dialog");
  const definition = editor.getByLabel("Definition as JSON");
  await definition.fill("{");
  await editor.getByRole("button", { name: "Review" }).click();
  await editor.getByRole("alert").waitFor();
  await definition.fill(JSON.stringify({ id: "/shop/web", cmd: hello, cpus: 0.1, mem: 48, instances: 3, labels: { edited: SCRIPT } }));
  await editor.getByText("Members of a definition").click();
  await editor.getByText("backoffFactor").waitFor();
  await editor.getByRole("button", { name: "Review" }).click();
  await editor.locator(".added").getByText('"mem": 48').waitFor();
  await editor.locator(".removed").getByText('"mem": 32').waitFor();
  await accessible(page, "comparison before a change");
  await editor.getByRole("button", { name: "Change" }).click();
  await page.locator(".notices .notice").getByText(/is changed \(deployment /).waitFor();
  const deployed = async () => {
    const running = await send("GET", `${apps}/v2/deployments`);
    return running.every(({ affectedApps }) => !affectedApps.includes("/shop/web"));
  };
  await eventually("the change to end", deployed);
  await detail.getByRole("link", { name: `edited=${SCRIPT}` }).waitFor();
  const definitions = page.getByRole("region", { name: "Definition" });
  const versions = definitions.getByLabel("Compare with a version");
  await eventually("a past version", async () => (await versions.locator("option").count()) > 1);
  const oldest = await versions.locator("option").last().getAttribute("value");
  await versions.selectOption(oldest);
  await definitions.locator(".removed").getByText('"mem": 32').waitFor();
  assert.match(await act(page, definitions, "Return to it"), /returns to the version of/);
  await eventually("the return to end", deployed);
  await eventually("the old definition", async () => (await send("GET", `${apps}/v2/apps/shop/web`)).app.mem === 32);
  await act(page, detail, "Scale", 3);
  await eventually("the scaling to end", deployed);
  await detail.getByText("3 of 3 running").waitFor();
  await tasks.getByRole("table", { name: "Ended tasks" }).getByText("killed").first().waitFor();
  await page.getByRole("region", { name: "What happened" }).getByText(/A task of \/shop\/web on 127\.0\.0\.\d was killed/).first().waitFor();
  await page.getByRole("region", { name: "Endpoints and names" }).getByText(/web\.shop\.marathon\.mesos/).first().waitFor();
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText(/3 of 3 agents may run it/).waitFor();
  await accessible(page, "app");
  await screenshot(page, "dashboard-app");
  const before = (await send("GET", `${apps}/v2/tasks`)).tasks.filter(({ appId }) => appId === "/shop/web");
  assert.match(await act(page, tasks, "Kill"), /is being killed/);
  await eventually("another task", async () => {
    const { tasks } = await send("GET", `${apps}/v2/tasks`);
    const now = tasks.filter(({ appId, state }) => appId === "/shop/web" && state === "TASK_RUNNING");
    return now.length === 3 && now.some(({ id }) => before.every((old) => old.id !== id));
  });
  assert.match(await act(page, detail, "Restart"), /restarts \(deployment /);
  await eventually("the restart to end", deployed);

  // Dangerous changes name what they affect, and a deletion asks for the name.
  await send("POST", `${apps}/v2/apps`, { id: "/needs", cmd: "sleep 1000", cpus: 0.1, mem: 32, dependencies: ["/shop/web"] });
  await detail.getByRole("button", { name: "Suspend" }).click();
  await page.getByRole("dialog").getByText("3 instances, 1 dependent: /needs").waitFor();
  await page.keyboard.press("Escape");
  await send("DELETE", `${apps}/v2/apps/needs`);
  assert.match(await act(page, detail, "Suspend"), /scaled to 0/);
  await detail.getByText("0 of 0 running").waitFor();
  await detail.getByRole("button", { name: "Delete" }).click();
  const question = page.getByRole("dialog");
  assert.ok(await question.getByRole("button", { name: "Delete" }).isDisabled());
  await question.getByRole("textbox").fill("/shop/we");
  assert.ok(await question.getByRole("button", { name: "Delete" }).isDisabled());
  await question.getByRole("textbox").fill("/shop/web");
  await question.getByRole("button", { name: "Delete" }).click();
  await page.locator(".notices .notice").getByText("is being deleted").waitFor();
  await list.getByRole("link", { name: "main" }).waitFor();
  await list.getByRole("link", { name: "web" }).waitFor({ state: "detached" });

  // The reason for a pending instance or a rejected change is shown.
  const running = page.getByRole("region", { name: "Deployments" });
  await running.getByRole("link", { name: "/waits" }).click();
  await page.getByRole("heading", { level: 1, name: "Deployment" }).waitFor();
  await page.getByText(/waits for 1: .*(too few CPUs|agents that)/).waitFor();
  await page.getByRole("region", { name: "Steps" }).getByText("now").waitFor();
  await accessible(page, "deployment");
  await page.getByRole("region", { name: "Steps" }).getByRole("link", { name: "/waits" }).last().click();
  const waits = page.getByRole("region", { name: "/waits", exact: true });
  assert.match(await act(page, waits, "Scale", 2), /Scale failed \(409\)/);
  const own = page.getByRole("region", { name: "Deployment", exact: true });
  await own.getByText(/0 of 1 instances have the new definition, 0 an older one\. It waits: /).waitFor();
  assert.match(await act(page, own, "Roll back"), /is rolled back/);
  await page.getByText("There is no app /waits").waitFor();
  await page.getByRole("link", { name: "search in the list" }).click();
  await page.getByText("No app matches the filters.").waitFor();
  await list.getByRole("link", { name: "waits" }).waitFor({ state: "detached" });

  // Markup and escape sequences are text.
  await page.goto(`${admin}/ui/#/apps/named`);
  const named = page.getByRole("region", { name: "/named", exact: true });
  await named.getByText("<script>alert('name')</script>").first().waitFor();
  await page.getByRole("region", { name: "Definition" }).getByText("<img src=x onerror=alert(1)>").first().waitFor();
  await tasks.getByRole("button", { name: /^Log of / }).first().click();
  await tasks.locator("pre .fg1").getByText("red", { exact: true }).waitFor();
  await tasks.locator("pre").getByText("\\u202eevil").waitFor();
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
  assert.match(await act(page, pods, "Delete", "/pair"), /\/pair is being deleted/);

  // Events.
  await open(page, "Events");
  await page.getByText("live", { exact: true }).waitFor();
  await page.evaluate(async (path) => {
    const headers = { "Content-Type": "application/json" };
    await fetch(path, { method: "PUT", headers, body: JSON.stringify({ instances: 2 }) });
  }, "/v1/services/apps/v2/apps/shop/db/main");
  await page.getByRole("button", { name: "api_post_event" }).first().waitFor();
  // The page begins with the events before it was opened.
  await page.getByLabel("Filter events by text").fill("/named");
  await page.getByRole("link", { name: /A task of \/named on 127\.0\.0\.\d runs/ }).first().waitFor();
  await page.getByLabel("Filter events by text").fill("");
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
  await page.getByRole("table", { name: "Queue" }).getByRole("link", { name: "waits" }).click();
  await page.getByRole("region", { name: "Placement" }).getByRole("button", { name: "Explain" }).click();
  await page.getByText(/\d of 3 agents may run it/).waitFor();
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
  await output.locator("pre").getByText("\\u202eevil").waitFor();
  await output.locator("pre .fg1").getByText("red", { exact: true }).waitFor();
  assert.match(await act(page, hostile, "Kill"), /<script>.*\\u202eevil is being killed/);
  assert.equal(await page.locator("img[src=x]").count(), 0);

  // Cluster.
  await open(page, "Cluster");
  const agents = page.getByRole("table", { name: "Agents" });
  assert.equal(await agents.getAttribute("aria-rowcount"), "4");
  await page.getByLabel("Filter agents").fill("rack:r2");
  await eventually("one agent", async () => (await agents.getAttribute("aria-rowcount")) === "2");
  await page.getByLabel("Filter agents").fill("");

  // Anything is found by its name.
  const find = async (query, kind, heading) => {
    await page.keyboard.press("Control+k");
    await page.getByRole("dialog").getByRole("combobox").fill(query);
    await page.getByRole("option").filter({ hasText: kind }).first().waitFor();
    await accessible(page, "find");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: heading, exact: true }).waitFor();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  await find("db/main app", "app", "App");
  await find("127.0.0.2 agent", "agent", "Agent");
  await find("attributes plugin", "plugin", "Plugins");
  await find("runs job", "job", "Workflow");
  await find("main.db.shop.marathon name", "name", "Discovery");
  await page.getByRole("cell", { name: /^127\.0\.0\./ }).first().waitFor();
  await open(page, "Cluster");

  // The overview begins with a crash loop; its app's page has the reason and the output of ended tasks.
  await open(page, "Overview");
  await page.getByRole("region", { name: /^Problems \(\d+\)/ }).getByRole("link", { name: "/crash" }).first().click();
  await page.getByRole("region", { name: "/crash", exact: true }).getByRole("alert").getByText(/crash loop: failed \d+ times/).waitFor();
  await tasks.getByRole("table", { name: "Ended tasks" }).getByText("Command exited with status 3").first().waitFor();
  await tasks.getByRole("button", { name: /^Log of the ended task crash\./ }).first().click();
  await tasks.getByRole("button", { name: "stderr" }).click();
  await tasks.locator("pre").getByText("about to die").first().waitFor();
  await accessible(page, "app in a crash loop");

  // Names stay readable on every width.
  for (const width of [1440, 1024, 390]) {
    await page.setViewportSize({ width, height: 860 });
    for (const [address, table] of [
      ["apps", "Apps and groups"], ["apps/named", "Tasks"], ["cluster", "Agents"], ["workflow", "Jobs"], ["plugins", "Plugins"], ["events", "Events"],
    ]) {
      await page.goto(`${admin}/ui/#/${address}`);
      const first = page.getByRole("table", { name: table, exact: true }).getByRole("columnheader").first();
      await first.waitFor();
      const { width: wide } = await first.boundingBox();
      assert.ok(wide >= 80, `${address} at ${width}: the first column has ${wide} pixels`);
      const across = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.ok(across <= 0, `${address} at ${width}: the page is ${across} pixels too wide`);
    }
    await page.goto(`${admin}/ui/#/overview`);
    await page.getByRole("figure").first().waitFor();
    assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= document.documentElement.clientWidth), `overview at ${width}`);
    if (width !== 1024) await screenshot(page, width === 390 ? "dashboard-narrow" : "dashboard-overview");
  }
  await page.setViewportSize({ width: 1360, height: 860 });
  await open(page, "Cluster");
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
  await page.getByRole("group", { name: "apps", exact: true }).getByText("ready", { exact: true }).waitFor();
  await page.getByText(/The daemon was restarted at/).waitFor();
  await page.getByRole("button", { name: "Dismiss" }).first().click();
  await page.getByText(/The daemon was restarted at/).waitFor({ state: "detached" });
});

await withPage(admin, { dark: true }, async (page) => {
  await page.getByRole("region", { name: /^Problems/ }).waitFor();
  await page.getByRole("figure").first().waitFor();
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
