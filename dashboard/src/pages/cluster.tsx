/** The agents of the cluster, with their total, used and offered resources. */

import { useMemo } from "preact/hooks";
import { get } from "../lib/api";
import { megabytesOf, displayText, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import { link, useQuery } from "../lib/route";
import { Badge, Bar, Panel } from "../parts/basics";
import { type Column, Table } from "../parts/table";

export interface Agent {
  id: string;
  host: string;
  state: string;
  version?: string;
  attributes: Record<string, string>;
  total: Record<string, number>;
  used: Record<string, number>;
  offered: Record<string, number>;
  /** What is reserved, by role. */
  reserved?: Record<string, Record<string, number>>;
}

function Resource({ agent, name }: { agent: Agent; name: string }) {
  const [total = 0, used = 0, offered = 0] = [agent.total[name], agent.used[name], agent.offered[name]];
  if (total === 0) return <span class="dull">–</span>;
  const isSize = name === "mem" || name === "disk";
  const text = isSize ? megabytesOf(used, total) : `${oneDecimal(used)} of ${oneDecimal(total)}`;
  return <Bar label={`${name} of ${displayText(agent.host, 100)}`} used={used} offered={offered} total={total} text={text} />;
}

export function Cluster() {
  const { value, error } = useLive("agents", async (signal) =>
    (await get<{ agents: Agent[] }>("/v1/cluster/agents", signal)).agents, 3_000);
  const [filter, setFilter] = useQuery("q");
  const [only, setOnly] = useQuery("only");
  const list = useMemo(() => {
    const filterText = filter.toLowerCase();
    const text = ({ host, id, state, attributes }: Agent) =>
      `${host} ${id} ${state} ${Object.entries(attributes).map((pair) => pair.join(":")).join(" ")}`.toLowerCase();
    return (value ?? []).filter((agent) => text(agent).includes(filterText) && (only !== "problems" || agent.state !== "active"));
  }, [value, filter, only]);
  const isPresent = (name: string) => (value ?? []).some(({ total }) => (total[name] ?? 0) > 0);
  const names = ["cpus", "mem", "disk", "gpus", "ports"].filter(isPresent);
  const offered = (value ?? []).filter((agent) => (agent.offered.cpus ?? 0) > 0).length;

  const columns: Column<Agent>[] = [
    { title: "Agent", width: "1fr", sort: ({ host }) => host, cell: ({ host, id }) => <a href={link("agents", id)} title={displayText(id, 200)}>{displayText(host, 100)}</a> },
    { title: "State", width: "6.5rem", sort: ({ state }) => state, cell: ({ state }) => <Badge tone={state === "active" ? "good" : "warn"}>{displayText(state, 30)}</Badge> },
    ...names.map((name): Column<Agent> => ({ title: name, width: "1.2fr", wide: name !== "cpus", sort: (agent) => (agent.used[name] ?? 0) / Math.max(agent.total[name] ?? 0, 1e-9), cell: (agent) => <Resource agent={agent} name={name} /> })),
    {
      title: "Attributes",
      width: "1.5fr",
      wide: true,
      cell: ({ attributes }) => {
        const text = Object.entries(attributes).map(([name, value]) => `${name}:${value}`).join("  ");
        return <code title={displayText(text)}>{displayText(text, 300)}</code>;
      },
    },
  ];
  return (
    <Panel
      title={value ? `Agents (${value.length})` : "Agents"}
      error={error}
      loading={!value}
      aside={
        <span class="buttons">
          <button type="button" aria-pressed={only === "problems"} onClick={() => setOnly(only ? "" : "problems")}>
            Only problems
          </button>
          <input type="search" placeholder="Filter by host or attribute" aria-label="Filter agents" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
        </span>
      }
    >
      <p class="note">
        Dark: used. Light: offered to a framework now ({offered} agents). The rest is unused and not offered at the moment.
      </p>
      <Table label="Agents" rows={list} columns={columns} id={({ id }) => id} empty={filter || only ? "No agent matches." : "No agent is registered."} />
    </Panel>
  );
}
