/** The daemon and its dependencies: current problems, and how to solve them. */

import { count, duration, megabytes, megabytesOf, shown, trim } from "../lib/format";
import type { Overview, Service } from "../lib/overview";
import { Badge, Bar, Empty, Facts, Panel } from "../parts/basics";

export function Home({ overview }: { overview: Overview | undefined }) {
  if (!overview) return <Panel title="Problems" loading />;
  const { problems, services } = overview;
  return (
    <>
      <Panel title="Problems" class={problems.length ? "attention" : ""}>
        {problems.length === 0 ? (
          <p class="fine">
            <Badge tone="good">OK</Badge> Nothing is wrong.
          </p>
        ) : (
          <ul class="problems">
            {problems.map(({ severity, source, message, advice }, at) => (
              <li key={at}>
                <Badge tone={severity === "error" ? "bad" : "warn"}>{shown(severity, 20)}</Badge>
                <div>
                  <b>{shown(source, 80)}</b> {shown(message)}
                  {advice && <p>{shown(advice)}</p>}
                </div>
              </li>
            ))}
          </ul>
        )}
      </Panel>
      <div class="cards">
        {services.map((service) => (
          <ServiceCard key={service.name} service={service} />
        ))}
      </div>
      <div class="columns">
        <ClusterPanel overview={overview} />
        <DaemonPanel overview={overview} />
      </div>
    </>
  );
}

function page(service: string): string {
  return `#/${service.split(".")[0]}`;
}

function ServiceCard({ service }: { service: Service }) {
  const { framework, ports = [], source } = service;
  const facts: [string, string][] = [];
  if (framework) {
    const leader = framework.leading ? "this daemon" : (framework.leader ?? "none");
    facts.push(["Leader", shown(leader, 80)]);
    if (framework.subscribed === false) facts.push(["Subscribed", "no"]);
  }
  if (source) facts.push(["Source", shown(source, 40)]);
  for (const [name, value] of Object.entries(service.summary ?? {})) {
    if (typeof value === "number") facts.push([label(name), trim(value)]);
    else if (typeof value === "string") facts.push([label(name), shown(value, 80)]);
  }
  for (const { name, address } of ports) facts.push([`Port ${name}`, shown(address, 80)]);
  return (
    <Panel
      title={service.name}
      aside={<Badge tone={service.ready ? "good" : "bad"}>{service.ready ? "ready" : "not ready"}</Badge>}
    >
      <Facts facts={facts} />
      <a class="more" href={page(service.name)} aria-label={`Open ${service.name}`}>
        Open
      </a>
    </Panel>
  );
}

function label(name: string): string {
  const text = name.replace(/_/g, " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function ClusterPanel({ overview: { cluster } }: { overview: Overview }) {
  const state = cluster.reachable === null ? "unknown" : cluster.reachable ? "reachable" : "unreachable";
  const { agents, resources } = cluster;
  return (
    <Panel title="Cluster" aside={<Badge tone={cluster.reachable === false ? "bad" : "good"}>{state}</Badge>}>
      <Facts
        facts={[
          ["Master", shown(cluster.leader ?? cluster.masters.join(", "), 200)],
          ["Version", shown(cluster.version ?? "–", 40)],
          ["Agents", `${count(agents.active)} of ${count(agents.total)} active`],
        ]}
      />
      {cluster.error && <p class="failed">{shown(cluster.error)}</p>}
      <div class="bars">
        {Object.entries(resources)
          .filter(([, { total }]) => total > 0)
          .map(([name, { total, used, offered }]) => {
            const isSize = name === "mem" || name === "disk";
            const text = isSize ? megabytesOf(used, total) : `${trim(used)} of ${trim(total)}`;
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
    ["Version", shown(overview.version, 40)],
    ["Host", shown(overview.hostname, 80)],
    ["Up for", duration(overview.uptime_seconds)],
  ];
  if (process) {
    const limit = process.open_files_limit === null ? "unlimited" : count(process.open_files_limit);
    facts.push(["Memory", megabytes(process.resident_bytes / 1024 / 1024)]);
    facts.push(["Open files", `${count(process.open_files)} of ${limit}`]);
    facts.push(["CPU time", duration(process.cpu_seconds)]);
  }
  if (store) {
    const answer = store.milliseconds === null ? "" : `, ${trim(store.milliseconds)} ms`;
    const state = store.reachable === false ? "unreachable" : `${store.durability}${answer}`;
    facts.push(["Store", `${shown(store.kind, 20)} ${shown(store.server, 200)}`], ["Store state", shown(state, 80)]);
  }
  if (plugins) facts.push(["Plugins", `${count(plugins.serving)} of ${count(plugins.total)} serving`]);
  return (
    <Panel title="Daemon" aside={<Badge tone={overview.ready ? "good" : "bad"}>{overview.ready ? "ready" : "not ready"}</Badge>}>
      <Facts facts={facts} />
      {store?.error && <p class="failed">{shown(store.error)}</p>}
      {!store && <Empty>No service of this daemon needs a store.</Empty>}
    </Panel>
  );
}
