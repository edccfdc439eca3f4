/** The daemon and its dependencies: current problems, and how to solve them. */

import { formatCount, duration, megabytes, megabytesOf, displayText, oneDecimal } from "../lib/format";
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
            <Badge tone="good">OK</Badge> No problems.
          </p>
        ) : (
          <ul class="problems">
            {problems.map(({ severity, source, message, advice }, at) => (
              <li key={at}>
                <Badge tone={severity === "error" ? "bad" : "warn"}>{displayText(severity, 20)}</Badge>
                <div>
                  <b>{displayText(source, 80)}</b> {displayText(message)}
                  {advice && <p>{displayText(advice)}</p>}
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
    facts.push(["Leader", displayText(leader, 80)]);
    if (framework.subscribed === false) facts.push(["Subscribed", "no"]);
  }
  if (source) facts.push(["Source", displayText(source, 40)]);
  for (const [name, value] of Object.entries(service.summary ?? {})) {
    if (typeof value === "number") facts.push([label(name), oneDecimal(value)]);
    else if (typeof value === "string") facts.push([label(name), displayText(value, 80)]);
  }
  for (const { name, address } of ports) facts.push([`Port ${name}`, displayText(address, 80)]);
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
