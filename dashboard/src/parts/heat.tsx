/** A map of many agents: one cell each, coloured by the resource that is used most. */

import { displayText, megabytesOf, oneDecimal } from "../lib/format";
import { link } from "../lib/route";
import type { Agent } from "../pages/cluster";
import { Empty } from "./basics";
import { sorted } from "./table";

const RESOURCES = ["cpus", "mem", "disk", "gpus"];
/** Agents that are shown; further ones are in the list. */
const MAX_CELLS = 1000;

/** The used share of the resource that is used most, from 0 to 1. */
export function use(agent: Agent): number {
  const shares = RESOURCES.map((name) => {
    const total = agent.total[name] ?? 0;
    return total > 0 ? (agent.used[name] ?? 0) / total : 0;
  });
  return Math.min(1, Math.max(...shares));
}

function description(agent: Agent): string {
  const amounts = RESOURCES.filter((name) => (agent.total[name] ?? 0) > 0).map((name) => {
    const [used, total] = [agent.used[name] ?? 0, agent.total[name] ?? 0];
    return name === "mem" || name === "disk" ? `${name} ${megabytesOf(used, total)}` : `${name} ${oneDecimal(used)} of ${oneDecimal(total)}`;
  });
  return `${agent.host} ${word(agent)}: ${amounts.join(", ")}`;
}

/** The use of an agent, or why it is not used. */
function word(agent: Agent): string {
  return agent.state === "active" ? `${Math.round(use(agent) * 100)} %` : agent.state;
}

export function HeatMap({ agents }: { agents: Agent[] }) {
  if (agents.length === 0) return <Empty>No agent is registered.</Empty>;
  const shown = sorted(agents, use, true).slice(0, MAX_CELLS);
  const named = agents.length <= 40;
  return (
    <>
      <ul class={named ? "heat named" : "heat"}>
        {shown.map((agent) => {
          const level = agent.state === "active" ? `level${Math.min(9, Math.floor(use(agent) * 10))}` : "away";
          const text = displayText(description(agent), 400);
          return (
            <li key={agent.id}>
              <a class={level} href={link("agents", agent.id)} title={text} aria-label={text}>
                {named && (
                  <>
                    {displayText(agent.host, 60)} <b>{displayText(word(agent), 20)}</b>
                  </>
                )}
              </a>
            </li>
          );
        })}
      </ul>
      <p class="note">The share of the resource that is used most. {agents.length > MAX_CELLS && `${agents.length - MAX_CELLS} agents with less use are in the list.`}</p>
    </>
  );
}
