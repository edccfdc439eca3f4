// Measures the dashboard on a running daemon: the time to the first paint, and the processor time
// of the daemon with 20 dashboards open while apps change.
//
// Usage: TRANSOM_NODE_PACKAGES=$PWD/target/node/dashboard node tests/dashboard/measure.mjs
// http://127.0.0.1:9990 PID
//
// A dashboard is simulated by the requests of its pages Overview and Apps: two streams, and lists
// that are fetched again after events. The load is an app without instances whose labels change;
// each change causes five to six events.

import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import { withPage } from "./browser.mjs";

const [admin, pid] = process.argv.slice(2);
const apps = `${admin}/v1/services/apps/v2`;
const SECONDS = 15;
const DASHBOARDS = 20;
const CHANGERS = 8;

const cpu = () => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function paints() {
  const times = [];
  for (let round = 0; round < 5; round += 1) {
    await withPage(admin, {}, async (page) => {
      await page.getByRole("region", { name: "Problems" }).waitFor();
      const paint = await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime);
      times.push(Math.round(paint));
    });
  }
  return times.sort((a, b) => a - b);
}

const stop = new AbortController();
setMaxListeners(0, stop.signal);
const counts = { events: 0, overviews: 0, changes: 0 };

async function stream(path, count) {
  const answer = await fetch(path, { headers: { Accept: "text/event-stream" }, signal: stop.signal });
  const decoder = new TextDecoder();
  for await (const piece of answer.body) count((decoder.decode(piece).match(/^event:/gm) ?? []).length);
}

async function repeat(path, ms) {
  while (!stop.signal.aborted) {
    await (await fetch(path, { signal: stop.signal })).arrayBuffer();
    await pause(ms);
  }
}

const quiet = (promise) => promise.catch((error) => {
  if (!stop.signal.aborted) throw error;
});

async function change(number) {
  for (let turn = 0; !stop.signal.aborted; turn += 1) {
    const body = JSON.stringify({ id: `/load/${number}`, cmd: "true", instances: 0, labels: { turn: String(turn) } });
    const headers = { "Content-Type": "application/json" };
    await (await fetch(`${apps}/apps/load/${number}?force=true`, { method: "PUT", headers, body, signal: stop.signal })).arrayBuffer();
    counts.changes += 1;
  }
}

async function during(what) {
  const [began, used, before] = [Date.now(), cpu(), { ...counts }];
  await pause(SECONDS * 1000);
  const seconds = (Date.now() - began) / 1000;
  const rate = (name) => Math.round((counts[name] - before[name]) / seconds);
  return { what, cpu_percent: Math.round((100 * (cpu() - used)) / seconds), events_per_second: rate("events"), changes_per_second: rate("changes") };
}

console.log(JSON.stringify({ first_paint_ms: await paints() }));
console.log(JSON.stringify(await during("idle")));
void quiet(stream(`${apps}/events?plan-format=light`, (events) => (counts.events += events)));
for (let number = 0; number < CHANGERS; number += 1) void quiet(change(number));
await pause(2000);
console.log(JSON.stringify(await during("changes, one reader of events")));
for (let number = 0; number < DASHBOARDS; number += 1) {
  void quiet(stream(`${admin}/v1/overview/stream`, (events) => (counts.overviews += events)));
  const kinds = ["deployment_success", "deployment_failed", "status_update_event", "app_terminated_event"];
  void quiet(stream(`${apps}/events?${kinds.map((kind) => `event_type=${kind}`).join("&")}&plan-format=light`, () => undefined));
  void quiet(repeat(`${apps}/apps?embed=apps.counts&embed=apps.deployments`, 1000));
  void quiet(repeat(`${apps}/deployments`, 1000));
  void quiet(repeat(`${apps}/queue?embed=reasons`, 1000));
}
await pause(2000);
console.log(JSON.stringify(await during(`the same with ${DASHBOARDS} dashboards`)));
stop.abort();
process.exit(0);
