/** The daemon and its site: first what is wrong, then how it does. */

import { get } from "../lib/api";
import { formatCount, duration, elapsedSince, megabytes, megabytesOf, displayText, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import { type Overview, type Problem, type Service, activity, subjectOf } from "../lib/overview";
import { Badge, Bar, Empty, Facts, Panel, Prose } from "../parts/basics";
import { HeatMap } from "../parts/heat";
import { type Line, Plot, useHistory } from "../parts/plot";
import type { Agent } from "./cluster";

/** The plots, each with the services of which one is needed. */
const PLOTS: { title: string; services: string[]; lines: Line[] }[] = [
  {
    title: "Tasks", services: ["apps", "workflow", "kubernetes"],
    lines: [
      { name: "tasks", label: "launched", colour: "--accent" },
      { name: "tasks_waiting", label: "waiting", colour: "--warn" },
      { name: "instances_unhealthy", label: "unhealthy", colour: "--bad" },
    ],
  },
  {
    title: "Launches and failures", services: ["apps", "workflow", "kubernetes"],
    lines: [
      { name: "launches", label: "launches", colour: "--good" },
      { name: "failures", label: "failures", colour: "--bad" },
      { name: "killed", label: "killed", colour: "--soft" },
    ],
  },
  {
    title: "CPUs of the cluster", services: [],
    lines: [
      { name: "cpus_used", label: "used", colour: "--accent" },
      { name: "cpus_total", label: "total", colour: "--soft", dashed: true },
    ],
  },
  {
    title: "Memory of the cluster", services: [],
    lines: [
      { name: "mem_used", label: "used", colour: "--accent" },
      { name: "mem_total", label: "total", colour: "--soft", dashed: true },
    ],
  },
  {
    title: "DNS queries", services: ["discovery"],
    lines: [
      { name: "dns_queries", label: "queries", colour: "--accent" },
      { name: "dns_errors", label: "errors", colour: "--bad" },
    ],
  },
  {
    title: "API requests", services: [],
    lines: [
      { name: "api_requests", label: "requests", colour: "--accent" },
      { name: "api_errors", label: "errors", colour: "--bad" },
    ],
  },
  {
    title: "Events", services: ["apps"],
    lines: [
      { name: "events", label: "published", colour: "--accent" },
      { name: "events_delivered", label: "delivered", colour: "--good" },
    ],
  },
  { title: "Turns of apps", services: ["apps"], lines: [{ name: "turn_seconds", label: "mean time of a turn", colour: "--warn" }] },
  {
    title: "Plugins", services: [],
    lines: [{ name: "plugin_calls", label: "calls", colour: "--accent" }],
  },
  { title: "Processor time of the daemon", services: [], lines: [{ name: "process_cpu", label: "used", colour: "--accent" }] },
  { title: "Memory of the daemon", services: [], lines: [{ name: "process_memory", label: "resident", colour: "--accent" }] },
];

export function Home({ overview }: { overview: Overview | undefined }) {
  if (!overview) return <Panel title="Problems" loading />;
  return (
    <>
      <Problems overview={overview} />
      <Plots overview={overview} />
      <div class="columns">
        <Agents />
        <Panel title="Services">
          <ul class="items services">
            {overview.services.map((service) => (
              <ServiceLine key={service.name} service={service} />
            ))}
          </ul>
        </Panel>
      </div>
      <div class="columns">
        <ClusterPanel overview={overview} />
        <DaemonPanel overview={overview} />
      </div>
    </>
  );
}

function Problems({ overview }: { overview: Overview }) {
  const { problems } = overview;
  const title = problems.length === 0 ? "Problems" : `Problems (${problems.length})`;
  return (
    <Panel title={title} class={problems.length ? "attention" : ""}>
      {problems.length === 0 ? (
        <p class="fine">
          <Badge tone="good">OK</Badge> No problems.
        </p>
      ) : (
        <ul class="problems">
          {problems.map((problem, at) => (
            <ProblemItem key={at} problem={problem} overview={overview} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function ProblemItem({ problem, overview }: { problem: Problem; overview: Overview }) {
  const { severity, source, message, advice } = problem;
  const { name, href, since } = subjectOf(problem, overview);
  return (
    <li>
      <Badge tone={severity === "error" ? "bad" : "warn"}>{displayText(severity, 20)}</Badge>
      <div>
        <a href={href}>{displayText(name ?? source, 200)}</a> <Prose text={name && message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message} />
        {advice && <p><Prose text={advice} /></p>}
      </div>
      {since && <small title={displayText(since, 40)}>for {elapsedSince(since)}</small>}
    </li>
  );
}

function Plots({ overview }: { overview: Overview }) {
  const { value, error } = useHistory();
  const runs = new Set(overview.services.map(({ name }) => name.split(".")[0] ?? ""));
  const plots = PLOTS.filter(({ services }) => services.length === 0 || services.some((name) => runs.has(name)));
  return (
    <Panel title="The last hour" error={error} loading={!value}>
      <div class="plots">{value && plots.map(({ title, lines }) => <Plot key={title} title={title} history={value} lines={lines} />)}</div>
    </Panel>
  );
}

function Agents() {
  const { value, error } = useLive("agents", async (signal) =>
    (await get<{ agents: Agent[] }>("/v1/cluster/agents", signal)).agents, 10_000);
  return (
    <Panel title="Agents by use" error={error} loading={!value} aside={<a href="#/cluster">List</a>}>
      {value && <HeatMap agents={value} />}
    </Panel>
  );
}

function ServiceLine({ service }: { service: Service }) {
  const { framework, ports = [], source, ready } = service;
  const { text, idle } = activity(service);
  const details: string[] = [];
  if (framework) details.push(framework.leading ? "leader: this daemon" : `leader: ${framework.leader ?? "none"}`);
  if (framework?.subscribed === false) details.push("not subscribed");
  if (source) details.push(`source: ${source}`);
  for (const { name, address } of ports) details.push(`${name} ${address}`);
  return (
    <li>
      <div role="group" aria-label={service.name} class="line">
        <a href={`#/${service.name.split(".")[0]}`}>
          <b>{service.name}</b>
        </a>
        <span>
          {displayText(text, 200)} <Badge tone={!ready ? "bad" : idle ? "dull" : "good"}>{!ready ? "not ready" : idle ? "idle" : "ready"}</Badge>
        </span>
      </div>
      <small>{displayText(details.join(" · "), 400)}</small>
    </li>
  );
}

function ClusterPanel({ overview: { cluster } }: { overview: Overview }) {
  const state = cluster.reachable === null ? "unknown" : cluster.reachable ? "reachable" : "unreachable";
  const { agents, resources } = cluster;
  return (
    <Panel title="Cluster" aside={<Badge tone={cluster.reachable === false ? "bad" : "good"}>{state}</Badge>}>
      <Facts
        facts={[
          ["Master", displayText(cluster.leader ?? cluster.masters.join(", "), 200)],
          ["Version", displayText(cluster.version ?? "–", 40)],
          ["Agents", `${formatCount(agents.active)} of ${formatCount(agents.total)} active`],
        ]}
      />
      {cluster.error && <p class="failed">{displayText(cluster.error)}</p>}
      <div class="bars">
        {Object.entries(resources)
          .filter(([, { total }]) => total > 0)
          .map(([name, { total, used, offered }]) => {
            const isSize = name === "mem" || name === "disk";
            const text = isSize ? megabytesOf(used, total) : `${oneDecimal(used)} of ${oneDecimal(total)}`;
            return (
              <div key={name}>
                <span>{name}</span>
                <Bar label={name} used={used} offered={offered} total={total} text={text} />
              </div>
            );
          })}
      </div>
      <a class="more" href="#/cluster" aria-label="Open cluster">
        Open
      </a>
    </Panel>
  );
}

function DaemonPanel({ overview }: { overview: Overview }) {
  const { store, plugins, process } = overview;
  const facts: [string, string][] = [
    ["Version", displayText(overview.version, 40)],
    ["Host", displayText(overview.hostname, 80)],
    ["Up for", duration(overview.uptime_seconds)],
  ];
  if (process) {
    const limit = process.open_files_limit === null ? "unlimited" : formatCount(process.open_files_limit);
    facts.push(["Memory", megabytes(process.resident_bytes / 1024 / 1024)]);
    facts.push(["Open files", `${formatCount(process.open_files)} of ${limit}`]);
    facts.push(["CPU time", duration(process.cpu_seconds)]);
  }
  if (store) {
    const answer = store.milliseconds === null ? "" : `, ${oneDecimal(store.milliseconds)} ms`;
    const state = store.reachable === false ? "unreachable" : `${store.durability}${answer}`;
    facts.push(["Store", `${displayText(store.kind, 20)} ${displayText(store.server, 200)}`], ["Store state", displayText(state, 80)]);
  }
  if (plugins) facts.push(["Plugins", `${formatCount(plugins.serving)} of ${formatCount(plugins.total)} serving`]);
  return (
    <Panel title="Daemon" aside={<Badge tone={overview.ready ? "good" : "bad"}>{overview.ready ? "ready" : "not ready"}</Badge>}>
      <Facts facts={facts} />
      {store?.error && <p class="failed">{displayText(store.error)}</p>}
      {!store && <Empty>No service of this daemon needs a store.</Empty>}
    </Panel>
  );
}
