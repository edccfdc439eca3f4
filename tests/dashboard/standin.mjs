// A stand-in for a daemon with 10,000 apps and 100,000 tasks. Its responses have the form of real
// ones. It can also respond slowly, with errors, and with another version of the API.

import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";

const KINDS = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml" };

export const APPS = 10_000;
export const TASKS_OF_FIRST = 90_001;

const apps = Array.from({ length: APPS }, (_, at) => ({
  id: `/team-${at % 50}/service-${at}`, cmd: "sleep 1000", instances: at === 0 ? TASKS_OF_FIRST : 1, cpus: 0.1, mem: 32, disk: 0,
  gpus: 0, labels: {}, tasksStaged: 0, tasksRunning: at === 0 ? TASKS_OF_FIRST : 1, tasksHealthy: 0, tasksUnhealthy: 0, deployments: [],
  version: "2026-01-01T00:00:00.000Z",
}));

const tasks = () => Array.from({ length: TASKS_OF_FIRST }, (_, at) => ({
  id: `team-0_service-0.instance-${at}._app.1`, appId: "/team-0/service-0", host: `host-${at % 1000}`, slaveId: `S${at % 1000}`,
  state: "TASK_RUNNING", ports: [31000 + (at % 1000)], startedAt: "2026-01-01T00:00:00.000Z",
}));

/** A text that must stay text: markup, a colour of a terminal, and a mark that reverses the direction. */
export const HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>\u001b[31m\u202eevil";

function overview({ api, version, hostile }) {
  const problems = hostile ? [{ severity: "error", source: HOSTILE, message: `/${HOSTILE}: ${HOSTILE}`, advice: `\`${HOSTILE}\` ${HOSTILE}`, subject: `/${HOSTILE}`, since: HOSTILE }] : [];
  return {
    version, api, hostname: "stand-in", uptime_seconds: 1, ready: true,
    services: [
      { name: "apps", ready: true, ports: [], summary: { apps: APPS } },
      { name: "kubernetes.blue", ready: true, ports: [] },
    ],
    cluster: { masters: [], reachable: true, error: null, leader: "m:5050", version: "1.11.0", agents: { total: 0, active: 0, inactive: [] }, resources: {} },
    process: null, problems,
  };
}

/** 3,000 agents, of which one is away; each is used a little more than the one before. */
const AGENTS = Array.from({ length: 3000 }, (_, at) => ({
  id: `S${at}`, host: `host-${at}`, state: at === 7 ? "disconnected" : "active", attributes: {}, total: { cpus: 3000 }, used: { cpus: at }, offered: {},
}));

/** An hour in which the values of all series are missing at first. */
const HISTORY = {
  start: 1_767_225_600, step: 10,
  series: { tasks: { unit: "tasks", values: Array.from({ length: 360 }, (_, at) => (at < 60 ? null : at)) } },
};

/** An agent, an app and a deployment whose every text is hostile. */
const AGENT = { id: HOSTILE, host: HOSTILE, state: HOSTILE, version: HOSTILE, attributes: { [HOSTILE]: HOSTILE }, total: { cpus: 1, [HOSTILE]: 1 }, used: { cpus: 1 }, offered: {}, reserved: { [HOSTILE]: { [HOSTILE]: 1 } } };
const APP = {
  ...apps[1], id: `/${HOSTILE}`, cmd: HOSTILE, labels: { [HOSTILE]: HOSTILE }, dependencies: [`/${HOSTILE}`], instances: 1,
  failing: { kind: HOSTILE, count: 2, since: HOSTILE, message: HOSTILE, advice: HOSTILE },
  lastTaskFailure: { taskId: HOSTILE, state: HOSTILE, message: HOSTILE, host: HOSTILE, slaveId: HOSTILE, timestamp: HOSTILE },
  readinessCheckResults: [{ name: HOSTILE, taskId: HOSTILE, ready: false }],
  tasks: [{ id: HOSTILE, host: HOSTILE, slaveId: HOSTILE, state: HOSTILE, ports: [], healthCheckResults: [{ alive: false, lastFailureCause: HOSTILE }] }],
};
const DEPLOYMENT = {
  id: "d-1", version: HOSTILE, affectedApps: [`/${HOSTILE}`], currentStep: 1, totalSteps: 1,
  steps: [{ actions: [{ action: HOSTILE, app: `/${HOSTILE}` }] }], currentActions: [{ action: HOSTILE, app: `/${HOSTILE}` }],
};
const PLACEMENT = {
  subscribed: true, matchers: [HOSTILE], constraints: [HOSTILE], agents: 1, accepted: 0, instances: 1, placed: 0,
  refusals: [{ condition: HOSTILE, agents: 1, values: [{ value: HOSTILE, agents: 1 }], examples: [HOSTILE] }], failure: { message: HOSTILE },
};

const member = (number, state) => ({ number, id: `agent-${number}`, state, host: state && "host-1", ports: [], node: state && `node-${number}` });

/** The answers of an instance of the kubernetes service, by their paths. */
const KUBERNETES = {
  "status/fw": { Server: "TASK_RUNNING", Agent: "TASK_STAGING", API: "ok", Kvstore: "TASK_RUNNING" },
  explain: {
    operation: null,
    waiting: [{ kind: "agent", reason: "no offer has 64 CPUs" }],
    tasks: { datastore: [], server: [], agent: [member(0, "TASK_RUNNING"), member(1, null)] },
    autoscale: null,
  },
  "kvstore/scale": { Scale: 1, Running: 1 },
  "server/scale": { Scale: 1, Running: 1 },
  "agent/scale": { Scale: 2, Running: 1 },
  "server/config": { kind: "Config" },
};

const digest = (letter) => `sha256:${letter.repeat(64)}`;

/** A plugin with a shadow whose answers differ. */
const PLUGIN = {
  name: "attributes", world: "attribute-matcher", version: "1.0.0", summary: "placement", digest: digest("a"), admitted_at: 1_767_225_600,
  state: "serving", refusal: null, disabled_reason: null, probation: null, in_flight: 0, instances: 2, calls: 5, traps: 1, timeouts: 0,
  denials: 0, p50_micros: 100, p99_micros: 200, queue: 0, cpu_millis: 1, memory_peak: 1_245_184, signed_by: null,
  last_trap: { at: 1_767_225_600, fault: "unreachable", backtrace: ["judge"] },
  rollout: {
    kind: "shadow", version: "2.0.0", digest: digest("b"), since: 1_767_225_600, automatic: false, percent: 100, calls: 4, compared: 4,
    differences: 1, faults: 0, dropped: 0, p99_micros: 300, serving_p99_micros: 200, missing: ["1000 compared answers"],
    samples: [{ question: "rack of <b>S1</b>", serving: "yes", candidate: "no\u001b[31m" }],
  },
};

/** An entry of the queue that is launched later, because its tasks have failed. */
const DELAYED = {
  app: { id: "/failing" }, count: 1, since: "2026-01-01T00:00:00Z", delay: { timeLeftSeconds: 3600, overdue: false },
  processedOffersSummary: { processedOffersCount: 0, unusedOffersCount: 0, rejectSummaryLastOffers: [] },
};

/** Starts it on a free port; `state` can be changed while it runs. */
export async function start(dist) {
  const state = { hostile: false, api: 1, version: "0.1.0", locked: false, queue: "fine", promoted: false, scaled: "" };
  const streams = new Set();
  const eventStreams = new Set();
  const server = createServer((request, response) => {
    const path = new URL(request.url, "http://localhost").pathname;
    const json = (value, status = 200) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(value));
    };
    const api = "/v1/services/apps/v2";
    const blue = "/v1/services/kubernetes.blue/api/fw/v0/";
    if (path === "/") {
      response.writeHead(302, { Location: "/ui/" });
      response.end();
    } else if (path.startsWith("/ui/")) {
      const name = path.slice(4) || "index.html";
      response.writeHead(200, { "Content-Type": KINDS[name.split(".").pop()] });
      response.end(readFileSync(join(dist, name)));
    } else if (path === "/v1/overview/stream" && state.locked) {
      json({ message: "wrong password" }, 401);
    } else if (path === "/v1/overview/stream") {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      response.write(`event: overview\ndata: ${JSON.stringify(overview(state))}\n\n`);
      streams.add(response);
      response.on("close", () => streams.delete(response));
    } else if (path === `${api}/events`) {
      response.writeHead(200, { "Content-Type": "text/event-stream" });
      const event = state.hostile ? { eventType: "status_update_event", appId: `/${HOSTILE}`, taskStatus: HOSTILE, message: HOSTILE, host: HOSTILE, timestamp: HOSTILE } : {};
      response.write(`event: ${event.eventType ?? "event_stream_attached"}\ndata: ${JSON.stringify(event)}\n\n`);
      eventStreams.add(response);
      response.on("close", () => eventStreams.delete(response));
    } else if (path === "/v1/user") json({ user: null, read_only: false });
    else if (path === `${api}/apps`) json({ apps });
    else if (path === `${api}/apps/team-0/service-0`) json({ app: { ...apps[0], tasks: tasks() } });
    else if (path === `${api}/tasks`) json({ tasks: tasks() });
    else if (path === "/v1/cluster/agents") json({ agents: state.hostile ? [...AGENTS.slice(0, 10), AGENT] : AGENTS });
    else if (path === `${api}/deployments` && state.hostile) json([DEPLOYMENT]);
    else if (decodeURIComponent(path) === `${api}/apps/${HOSTILE}`) json({ app: APP });
    else if (decodeURIComponent(path) === `${api}/apps/${HOSTILE}/versions`) json({ versions: [HOSTILE, APP.version] });
    else if (decodeURIComponent(path) === `${api}/apps/${HOSTILE}/versions/${HOSTILE}`) json({ ...APP, cmd: "old" });
    else if (path === "/v1/plugins/explain/matcher") json(PLACEMENT);
    else if (path === "/v1/history") json(HISTORY);
    else if (path === `${api}/pods/::status`) json([]);
    else if (path === `${api}/deployments`) json([]);
    else if (path === `${api}/queue` && state.queue === "failing") json({ message: "the store is away" }, 503);
    else if (path === `${api}/queue` && state.queue === "slow") return; // It never answers.
    else if (path === `${api}/queue`) json({ queue: state.queue === "delayed" ? [DELAYED] : [] });
    else if (path === `${api}/queue/failing/delay` && request.method === "DELETE") {
      state.queue = "fine";
      json({});
    } else if (path === "/v1/plugins") json({ plugins: [{ ...PLUGIN, rollout: state.promoted ? null : PLUGIN.rollout }], dir: "/plugins", uploads: false });
    else if (path === "/v1/plugins/attributes/history") json({ durability: "store", records: [] });
    else if (path === "/v1/plugins/attributes/log") json({ lines: [] });
    else if (path === "/v1/plugins/attributes/promote" && request.method === "POST") {
      state.promoted = true;
      json({});
    } else if (path.startsWith(blue) && request.method === "PUT") {
      state.scaled = path.slice(blue.length);
      json("scaled");
    } else if (path.startsWith(blue) && path.slice(blue.length) in KUBERNETES) json(KUBERNETES[path.slice(blue.length)]);
    else json({ message: "Not found" }, 404);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const send = () => streams.forEach((stream) => stream.write(`event: overview\ndata: ${JSON.stringify(overview(state))}\n\n`));
  // Pages close a stream that is silent for 45 seconds.
  const heartbeat = setInterval(() => {
    send();
    eventStreams.forEach((stream) => stream.write("\n"));
  }, 10_000);
  /** Ends the streams of the overview, as a daemon does that stops. */
  const drop = () => streams.forEach((stream) => stream.end());
  const stop = () => {
    clearInterval(heartbeat);
    server.closeAllConnections();
    server.close();
  };
  return { origin: `http://127.0.0.1:${server.address().port}`, state, send, drop, stop };
}
