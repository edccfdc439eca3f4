/** One agent: its state, attributes, resources and tasks. */

import { useState } from "preact/hooks";
import { type LogSource, type Task, api, healthOf, shortId, stateWord } from "../lib/apps";
import { get } from "../lib/api";
import { displayText, elapsedSince, megabytes, megabytesOf, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import type { Overview } from "../lib/overview";
import { link } from "../lib/route";
import { Badge, Bar, Empty, Facts, Panel } from "../parts/basics";
import { type Column, Table } from "../parts/table";
import { TaskLog } from "../parts/tasklog";
import type { Agent } from "./cluster";

const STATES: Partial<Record<string, string>> = {
  disconnected: "The master has lost the connection to the agent; its tasks may still run.",
  deactivated: "The master offers none of its resources.",
  draining: "Its tasks are being killed, and the master offers none of its resources.",
  drained: "All its tasks have ended; it can be maintained.",
};

export function AgentPage({ id, overview }: { id: string; overview: Overview | undefined }) {
  const { value, error } = useLive(`agent ${id}`, async (signal) => {
    const { agents } = await get<{ agents: Agent[] }>("/v1/cluster/agents", signal);
    return { agent: agents.find((agent) => agent.id === id) };
  }, 3_000);
  const hasApps = overview?.services.some(({ name }) => name === "apps") === true;
  const tasks = useLive(hasApps ? `tasks of ${id}` : "", async (signal) => {
    const all = await get<{ tasks: Task[] }>(api("/v2/tasks"), signal);
    return all.tasks.filter(({ slaveId }) => slaveId === id);
  }, 10_000);
  const [log, setLog] = useState<LogSource>();
  const agent = value?.agent;
  if (!agent) {
    return (
      <Panel title={`Agent ${displayText(id, 100)}`} error={error} loading={!value}>
        <Empty>
          The master lists no agent with this id. It may have been removed. <a href="#/cluster">All agents</a>
        </Empty>
      </Panel>
    );
  }
  const attributes = Object.entries(agent.attributes);
  const columns: Column<Task>[] = [
    { title: "App", width: "3fr", sort: ({ appId }) => appId ?? "", cell: ({ appId }) => <a href={link("apps", appId)}>{displayText(appId, 200)}</a> },
    { title: "Task", width: "3fr", wide: true, cell: (task) => <span title={displayText(task.id, 300)}>{displayText(shortId(task.id), 100)}</span> },
    { title: "State", width: "6rem", sort: ({ state }) => state, cell: ({ state }) => <Badge tone={state === "TASK_RUNNING" ? "good" : "info"}>{stateWord(state)}</Badge> },
    {
      title: "Health",
      width: "3fr",
      wide: true,
      cell: (task) => {
        const { word, tone, reason } = healthOf(task);
        return word && <span title={reason}><Badge tone={tone}>{word}</Badge> {reason}</span>;
      },
    },
    { title: "Since", width: "6rem", cell: ({ startedAt, stagedAt }) => elapsedSince(startedAt ?? stagedAt) },
    {
      title: "",
      width: "4rem",
      end: true,
      cell: (task) => (
        <button type="button" onClick={() => setLog({ id: task.id, agent: task.slaveId })} aria-label={`Log of ${displayText(task.id, 200)}`}>
          Log
        </button>
      ),
    },
  ];
  return (
    <>
      <Panel
        title={displayText(agent.host, 200)}
        error={error}
        aside={
          <span class="buttons">
            <Badge tone={agent.state === "active" ? "good" : "warn"}>{displayText(agent.state, 30)}</Badge>
            <a href="#/cluster">All agents</a>
          </span>
        }
      >
        {STATES[agent.state] && <p class="note">{STATES[agent.state]}</p>}
        <Facts facts={[["Id", displayText(agent.id, 100)], ["Version", displayText(agent.version ?? "–", 40)]]} />
        <h3>Attributes</h3>
        {attributes.length === 0 && <Empty>It has none.</Empty>}
        <Facts facts={attributes.map(([name, text]) => [displayText(name, 100), displayText(text, 200)])} />
      </Panel>
      <div class="columns">
        <Panel title="Resources">
          <div class="bars">
            {Object.entries(agent.total).map(([name, total]) => {
              const [used, offered] = [agent.used[name] ?? 0, agent.offered[name] ?? 0];
              const isSize = name === "mem" || name === "disk";
              const text = isSize ? megabytesOf(used, total) : `${oneDecimal(used)} of ${oneDecimal(total)}`;
              return (
                <div key={name}>
                  <span>{displayText(name, 30)}</span>
                  <Bar label={displayText(name, 30)} used={used} offered={offered} total={total} text={text} />
                </div>
              );
            })}
          </div>
          <p class="note">Dark: used by tasks. Light: offered to a framework now.</p>
        </Panel>
        <Reservations agent={agent} />
      </div>
      <Panel title="Tasks of apps" error={tasks.error} loading={hasApps && !tasks.value}>
        {!hasApps && <Empty>This daemon runs no apps.</Empty>}
        {tasks.value && <Table label="Tasks of the agent" rows={tasks.value} columns={columns} id={(task) => task.id} empty="It runs no task of an app." />}
        {log && <TaskLog key={log.id} source={log} close={() => setLog(undefined)} />}
      </Panel>
    </>
  );
}

function Reservations({ agent }: { agent: Agent }) {
  const roles = Object.entries(agent.reserved ?? {});
  return (
    <Panel title="Reservations">
      {roles.length === 0 && <Empty>None of its resources are reserved for a role.</Empty>}
      <Facts
        facts={roles.map(([role, amounts]) => [
          displayText(role, 100),
          displayText(Object.entries(amounts).map(([name, amount]) => `${name} ${name === "mem" || name === "disk" ? megabytes(amount) : oneDecimal(amount)}`).join(", "), 300),
        ])}
      />
    </Panel>
  );
}
