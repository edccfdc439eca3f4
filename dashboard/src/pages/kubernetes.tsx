/** Kubernetes clusters that run as tasks: their members, nodes, phases and the client configuration. */

import { change, get, servicePath, getText } from "../lib/api";
import { displayText, localTime } from "../lib/format";
import { useLive } from "../lib/live";
import type { Overview } from "../lib/overview";
import { Action } from "../parts/actions";
import { Badge, Empty, Facts, Panel } from "../parts/basics";
import { type Column, Table } from "../parts/table";

interface Member {
  number: number;
  id: string;
  state: string | null;
  host: string | null;
  ports: number[];
  node: string | null;
}

interface Explanation {
  operation: Record<string, unknown> | null;
  waiting: { kind: string; reason: string }[];
  tasks: Record<string, Member[]>;
  autoscale: {
    min: number;
    max: number;
    unschedulable_pods: number;
    idle_agents: number;
    notes: string[];
    last: { at: string; from: number; to: number; reason: string } | null;
  } | null;
}

interface Status {
  Server: string;
  Agent: string;
  API: string;
  Kvstore: string;
  Operation?: string;
}

const KINDS = ["kvstore", "server", "agent"];

export function Kubernetes({ overview }: { overview: Overview | undefined }) {
  if (!overview) return <Panel title="Instances" loading />;
  const names = overview.services.map(({ name }) => name).filter((name) => name.split(".")[0] === "kubernetes");
  if (names.length === 0) {
    return (
      <Panel title="Instances">
        <Empty>This daemon runs no Kubernetes: its configuration has no section [kubernetes].</Empty>
      </Panel>
    );
  }
  return (
    <>
      {names.map((name) => (
        <Instance key={name} name={name} />
      ))}
    </>
  );
}

function Instance({ name }: { name: string }) {
  const api = (path: string) => servicePath(name, `/api/fw/v0/${path}`);
  const status = useLive(`${name} status`, (signal) => get<Status>(api("status/fw"), signal), 3_000);
  const explanation = useLive(`${name} explain`, (signal) => get<Explanation>(api("explain"), signal), 3_000);
  const scales = useLive(`${name} scales`, async (signal) => {
    const all = KINDS.map((kind) => get<{ Scale: number; Running: number }>(api(`${kind}/scale`), signal));
    return await Promise.all(all);
  }, 3_000);
  const config = useLive(`${name} config`, (signal) => getText(api("server/config"), signal), 30_000);
  const refresh = () => {
    status.refresh();
    explanation.refresh();
    scales.refresh();
  };
  const members = Object.entries(explanation.value?.tasks ?? {}).flatMap(([kind, list]) =>
    list.map((member) => ({ kind, ...member })));
  const columns: Column<Member & { kind: string }>[] = [
    { title: "Kind", width: "6rem", cell: ({ kind }) => displayText(kind, 40) },
    { title: "No.", width: "3rem", end: true, cell: ({ number }) => number },
    {
      title: "State",
      width: "7rem",
      cell: ({ state }) => {
        const stateText = state ? state.replace(/^TASK_/, "").toLowerCase() : "waiting";
        return <Badge tone={stateText === "running" ? "good" : state ? "info" : "warn"}>{displayText(stateText, 30)}</Badge>;
      },
    },
    { title: "Host", width: "1fr", wide: true, cell: ({ host, ports }) => displayText(host ? `${host}${ports.length ? `:${ports.join(",")}` : ""}` : "–", 100) },
    { title: "Node", width: "1fr", wide: true, cell: ({ node }) => displayText(node ?? "–", 100) },
    { title: "Task", width: "2fr", cell: ({ id }) => <span title={displayText(id, 300)}>{displayText(id, 200)}</span> },
  ];
  const { value } = explanation;
  const ok = status.value?.API === "ok";
  return (
    <Panel
      title={name}
      error={status.error ?? explanation.error ?? scales.error}
      loading={!status.value}
      aside={<Badge tone={ok ? "good" : "warn"}>{ok ? "API answers" : "API does not answer"}</Badge>}
    >
      <div class="actions">
        {KINDS.map((kind, at) => (
          <Action
            key={kind}
            label={`Scale ${kind}`}
            question={`Scale ${kind} of ${name}?`}
            number={{ label: "Count", value: scales.value?.[at]?.Scale ?? 0, max: 10_000 }}
            run={async (number) => {
              await change("PUT", api(`${kind}/scale/${number}`));
              return `${kind} of ${name} is scaled to ${number}.`;
            }}
            done={refresh}
          />
        ))}
        {["agent", "server", "cluster"].map((part) => (
          <Action
            key={part}
            label={`Restart ${part}`}
            question={`Restart ${part} of ${name}?`}
            detail="Tasks are replaced one by one."
            run={async () => {
              await change("PUT", api(`${part}/restart`));
              return `${part} of ${name} restarts.`;
            }}
            done={refresh}
          />
        ))}
        <Action
          label="Stop"
          danger
          question={`Stop ${name}?`}
          detail="All counts become 0; starting it restores them."
          run={async () => {
            await change("PUT", api("cluster/stop"));
            return `${name} is being stopped.`;
          }}
          done={refresh}
        />
        <Action
          label="Start"
          question={`Start ${name}?`}
          run={async () => {
            await change("PUT", api("cluster/start"));
            return `${name} is being started.`;
          }}
          done={refresh}
        />
      </div>
      <Facts
        facts={[
          ...KINDS.map((kind, at): [string, string] => {
            const scale = scales.value?.[at];
            return [kind, scale ? `${scale.Running} of ${scale.Scale} running` : "–"];
          }),
          ["Under way", displayText(status.value?.Operation ?? "nothing", 200)],
        ]}
      />
      {value?.waiting.map(({ kind, reason }, at) => (
        <p class="note" key={at}>
          <Badge tone="warn">waiting</Badge> {displayText(kind, 40)}: {displayText(reason, 500)}
        </p>
      ))}
      {value?.autoscale && (
        <p class="note">
          Autoscaler: {value.autoscale.min} to {value.autoscale.max} agents, {value.autoscale.unschedulable_pods} pods
          unschedulable, {value.autoscale.idle_agents} agents idle.
          {value.autoscale.last && ` Last change ${localTime(value.autoscale.last.at)}: ${value.autoscale.last.from} to ${value.autoscale.last.to}, ${displayText(value.autoscale.last.reason, 300)}.`}
          {value.autoscale.notes.map((note) => ` ${displayText(note, 300)}`)}
        </p>
      )}
      <h3>Members</h3>
      <Table label={`Members of ${name}`} rows={members} columns={columns} id={({ id, kind, number }) => `${kind}${number}${id}`} height={12} empty="It has no members: all counts are 0." />
      <h3>Client configuration</h3>
      {config.value ? (
        <p>
          <a download={`${name}.kubeconfig`} href={api("server/config")}>
            Download the configuration for kubectl
          </a>{" "}
          It has the credentials of an administrator.
        </p>
      ) : (
        <Empty>{config.error ? "Available when a server is running." : "Loading…"}</Empty>
      )}
    </Panel>
  );
}
