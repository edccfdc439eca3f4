/** Pods with their containers and the output of each. */

import { useState } from "preact/hooks";
import { type LogSource, api, shortId } from "../lib/apps";
import { appPath, change } from "../lib/api";
import { displayText, elapsedSince } from "../lib/format";
import { Action } from "./actions";
import { Badge, Panel } from "./basics";
import { type Column, Table } from "./table";
import { TaskLog } from "./tasklog";

export interface Pod {
  id: string;
  status: string;
  spec?: { scaling?: { instances?: number } };
  instances: PodInstance[];
}

interface PodInstance {
  id: string;
  agentId?: string;
  agentHostname?: string;
  executorId?: string;
  containers: { name: string; containerId: string; status: string; statusSince: string }[];
}

export function Pods({ pods, refresh }: { pods: Pod[]; refresh: () => void }) {
  const [selected, setSelected] = useState("");
  const [log, setLog] = useState<LogSource>();
  const pod = pods.find(({ id }) => id === selected);
  const select = (id: string) => {
    setSelected(id === selected ? "" : id);
    setLog(undefined);
  };
  const columns: Column<Pod>[] = [
    {
      title: "Pod",
      width: "3fr",
      cell: ({ id }) => (
        <button type="button" class="plain" aria-expanded={id === selected} onClick={() => select(id)} title="Containers and their output">
          {id === selected ? "▾" : "▸"} {displayText(id, 200)}
        </button>
      ),
    },
    { title: "State", width: "7rem", cell: ({ status }) => <Badge tone={status === "STABLE" ? "good" : "info"}>{displayText(status.toLowerCase(), 30)}</Badge> },
    { title: "Instances", width: "6rem", end: true, cell: ({ instances }) => instances.length },
    {
      title: "",
      width: "6rem",
      end: true,
      cell: ({ id, instances }) => (
        <Action
          label="Delete"
          danger
          question={`Delete ${displayText(id, 200)}?`}
          detail={`All instances are killed and the definition is deleted (${instances.length} ${instances.length === 1 ? "instance" : "instances"}).`}
          confirmName={id}
          run={async () => {
            await change("DELETE", api(`/v2/pods${appPath(id)}`));
            return `${displayText(id, 200)} is being deleted.`;
          }}
          done={refresh}
        />
      ),
    },
  ];
  return (
    <Panel title="Pods">
      <Table label="Pods" rows={pods} columns={columns} id={({ id }) => id} selected={selected} height={10} empty="There are no pods." />
      {pod && <Containers pod={pod} log={setLog} />}
      {pod && log && <TaskLog key={log.id} source={log} close={() => setLog(undefined)} />}
    </Panel>
  );
}

function Containers({ pod, log }: { pod: Pod; log: (source: LogSource) => void }) {
  const rows = pod.instances.flatMap((instance) => instance.containers.map((container) => ({ instance, ...container })));
  const columns: Column<(typeof rows)[number]>[] = [
    { title: "Container", width: "1.5fr", cell: ({ name }) => displayText(name, 100) },
    { title: "Instance", width: "3fr", cell: ({ instance }) => <span title={displayText(instance.id, 300)}>{displayText(shortId(instance.id), 100)}</span> },
    {
      title: "State",
      width: "6rem",
      cell: ({ status }) => {
        const state = status.replace(/^TASK_/, "").toLowerCase();
        return <Badge tone={state === "running" ? "good" : "info"}>{displayText(state, 30)}</Badge>;
      },
    },
    { title: "Host", width: "2fr", wide: true, cell: ({ instance }) => displayText(instance.agentHostname ?? "–", 100) },
    { title: "Since", width: "5rem", wide: true, cell: ({ statusSince }) => elapsedSince(statusSince) },
    {
      title: "",
      width: "4rem",
      end: true,
      cell: ({ instance: { agentId, executorId }, containerId }) =>
        agentId !== undefined && executorId !== undefined && (
          <button
            type="button"
            onClick={() => log({ id: containerId, agent: agentId, executor: executorId })}
            aria-label={`Log of ${displayText(containerId, 200)}`}
          >
            Log
          </button>
        ),
    },
  ];
  return (
    <>
      <h3>Containers of {displayText(pod.id, 200)}</h3>
      <Table label="Containers" rows={rows} columns={columns} id={({ containerId }) => containerId} height={10} empty="No container is launched." />
    </>
  );
}
