/** Apps, pods and groups: instances, health, deployments, and why apps and pods are waiting. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { appPath, change, get, servicePath } from "../lib/api";
import { megabytes, displayText, elapsedSince, localTime, oneDecimal } from "../lib/format";
import { useLive, useThrottled } from "../lib/live";
import { follow } from "../lib/sse";
import { type App, type Health, type Row, appHealth, treeRows } from "../lib/tree";
import { type Queue, type QueueItem, conditions, waitingSummary } from "../lib/waiting";
import { Action } from "../parts/actions";
import { Badge, Empty, Facts, Panel, type Tone } from "../parts/basics";
import { Log } from "../parts/log";
import { type Column, Table } from "../parts/table";

const api = (path: string) => servicePath("apps", path);

interface Deployment {
  id: string;
  affectedApps: string[];
  affectedPods?: string[];
  currentStep: number;
  totalSteps: number;
  currentActions: { action: string; app?: string; pod?: string }[];
  canary?: { state: string; instances: string; heldSince: string | null };
}

interface Task {
  id: string;
  host: string;
  slaveId: string;
  state: string;
  ports: number[];
  startedAt?: string;
  stagedAt?: string;
  healthCheckResults?: { alive: boolean; lastFailureCause?: string }[];
}

interface Pod {
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

/** The task whose output is shown. A task of a group writes it to the sandbox of the group's executor. */
interface LogSource {
  id: string;
  agent: string;
  executor?: string;
}

const TONES: Record<Health, Tone> = {
  healthy: "good", running: "good", unhealthy: "bad", waiting: "warn", deploying: "info", suspended: "dull",
};

/** Events after which lists are requested again. */
const CHANGE_EVENTS = [
  "deployment_info", "deployment_success", "deployment_failed", "deployment_step_success", "group_change_success",
  "app_terminated_event", "instance_health_changed_event", "status_update_event", "pod_created_event",
  "pod_updated_event", "pod_deleted_event",
];

export function Apps({ selected }: { selected: string }) {
  const apps = useLive("apps", async (signal) => {
    const path = api("/v2/apps?embed=apps.counts&embed=apps.deployments");
    return (await get<{ apps: App[] }>(path, signal)).apps;
  }, 15_000);
  const deployments = useLive("deployments", (signal) =>
    get<Deployment[]>(api("/v2/deployments?embed=canary"), signal), 5_000);
  const queue = useLive("queue", (signal) => get<Queue>(api("/v2/queue?embed=reasons"), signal), 5_000);
  const pods = useLive("pods", (signal) => get<Pod[]>(api("/v2/pods/::status"), signal), 10_000);

  const listChanged = useThrottled(apps.refreshSoon, pauseOf(apps.value));
  const deploymentsChanged = useThrottled(deployments.refreshSoon, pauseOf(deployments.value));
  const queueChanged = useThrottled(queue.refreshSoon, pauseOf(queue.value?.queue));
  const refreshDeploymentsAndQueue = () => {
    deployments.refresh();
    queue.refresh();
  };
  useEffect(() => {
    const query = CHANGE_EVENTS.map((name) => `event_type=${name}`).join("&");
    return follow(api(`/v2/events?${query}&plan-format=light`), {
      event: () => {
        listChanged();
        deploymentsChanged();
        queueChanged();
      },
      state: () => undefined,
    });
  }, [listChanged, deploymentsChanged, queueChanged]);
  const refresh = () => {
    apps.refresh();
    refreshDeploymentsAndQueue();
  };

  return (
    <>
      <div class="columns wide">
        <List apps={apps.value} error={apps.error} selected={selected} />
        {selected ? (
          <Detail key={selected} id={selected} refresh={refresh} />
        ) : (
          <div>
            <Deployments list={deployments.value} error={deployments.error} refresh={refreshDeploymentsAndQueue} />
            <Waiting queue={queue.value} error={queue.error} refresh={refreshDeploymentsAndQueue} />
          </div>
        )}
      </div>
      {selected && (
        <div class="columns">
          <Deployments list={deployments.value} error={deployments.error} refresh={refreshDeploymentsAndQueue} />
          <Waiting queue={queue.value} error={queue.error} first={selected} refresh={refreshDeploymentsAndQueue} />
        </div>
      )}
      {pods.value && pods.value.length > 0 && <Pods pods={pods.value} refresh={pods.refresh} />}
    </>
  );
}

/** The pause before a list is requested because of an event; a long list is requested less often. */
function pauseOf(list: unknown[] = []): number {
  return list.length > 1000 ? 10_000 : 1_000;
}

function List(props: { apps: App[] | undefined; error?: Parameters<typeof Panel>[0]["error"]; selected: string }) {
  const [filter, setFilter] = useState("");
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const list = useMemo(() => treeRows(props.apps ?? [], closed, filter), [props.apps, closed, filter]);
  const toggle = (id: string) =>
    setClosed((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  const columns: Column<Row>[] = [
    {
      title: "App",
      width: "3fr",
      cell: (row) => (
        <span class="name" style={{ paddingLeft: `${row.depth * 14}px` }}>
          {row.kind === "group" ? (
            <button type="button" class="plain" aria-expanded={row.open} onClick={() => toggle(row.id)}>
              {row.open ? "▾" : "▸"} {displayText(row.name, 200)}
            </button>
          ) : (
            <a href={`#/apps${appPath(row.id)}`} title={displayText(row.id, 500)}>
              {displayText(row.name, 200)}
            </a>
          )}
        </span>
      ),
    },
    {
      title: "State",
      width: "6.5rem",
      cell: (row) => {
        if (row.kind === "app") return <Badge tone={TONES[appHealth(row.app)]}>{appHealth(row.app)}</Badge>;
        const { apps, unhealthy } = row.sums;
        return unhealthy > 0 ? <Badge tone="bad">{unhealthy} unhealthy</Badge> : <small>{apps} apps</small>;
      },
    },
    {
      title: "Running",
      width: "5.5rem",
      end: true,
      cell: (row) =>
        row.kind === "app"
          ? `${row.app.tasksRunning} / ${row.app.instances}`
          : `${row.sums.running} / ${row.sums.instances}`,
    },
    { title: "CPUs", width: "4rem", end: true, cell: (row) => (row.kind === "app" ? oneDecimal(row.app.cpus) : "") },
    { title: "Memory", width: "5rem", end: true, cell: (row) => (row.kind === "app" ? megabytes(row.app.mem) : "") },
  ];
  return (
    <Panel
      title="Apps"
      error={props.error}
      loading={!props.apps}
      aside={
        <input
          type="search"
          placeholder="Filter by id"
          aria-label="Filter apps by id"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
      }
    >
      <Table
        label="Apps and groups"
        rows={list}
        columns={columns}
        id={(row) => `${row.kind}${row.id}`}
        selected={`app${props.selected}`}
        empty={filter ? "No app has this in its id." : "There are no apps. `transom apps create -f FILE` makes one."}
      />
    </Panel>
  );
}

function deploymentNote(answer: unknown): string {
  const id = (answer as { deploymentId?: string } | undefined)?.deploymentId;
  return id ? ` (deployment ${id})` : "";
}

function Detail({ id, refresh }: { id: string; refresh: () => void }) {
  const path = api(`/v2/apps${appPath(id)}`);
  const { value, error, ...live } = useLive(id, async (signal) => {
    const embed = "?embed=app.tasks&embed=app.counts&embed=app.deployments";
    return (await get<{ app: App & { tasks: Task[] } }>(path + embed, signal)).app;
  }, 3_000);
  const [log, setLog] = useState<Task>();
  const done = () => {
    live.refresh();
    refresh();
  };
  const name = displayText(id, 200);
  const scale = async (instances: number) => `${name} is scaled to ${instances}${deploymentNote(await change("PUT", path, { instances }))}.`;
  return (
    <Panel
      title={name}
      error={error}
      loading={!value}
      aside={
        <a href="#/apps" aria-label="Close the app">
          ✕
        </a>
      }
    >
      {value && (
        <>
          <div class="actions">
            <Action
              label="Scale"
              question={`Scale ${name}?`}
              number={{ label: "Instances", value: value.instances, max: 100_000 }}
              run={scale}
              done={done}
            />
            <Action
              label="Restart"
              question={`Restart ${name}?`}
              detail={`All ${value.instances} instances are replaced, within the bounds of the upgrade strategy.`}
              run={async () => `${name} restarts${deploymentNote(await change("POST", `${path}/restart`))}.`}
              done={done}
            />
            <Action
              label="Suspend"
              question={`Suspend ${name}?`}
              detail="All instances are killed; the definition stays."
              disabled={value.instances === 0 ? "It has no instances." : undefined}
              run={() => scale(0)}
              done={done}
            />
            <Action
              label="Delete"
              danger
              question={`Delete ${name}?`}
              detail="All instances are killed and the definition is deleted."
              run={async () => {
                const answer = await change("DELETE", path);
                location.hash = "#/apps";
                return `${name} is being deleted${deploymentNote(answer)}.`;
              }}
              done={refresh}
            />
          </div>
          <Facts
            facts={[
              ["State", <Badge tone={TONES[appHealth(value)]}>{appHealth(value)}</Badge>],
              ["Instances", `${value.tasksRunning} of ${value.instances} running`],
              ["Healthy", value.healthChecks?.length ? `${value.tasksHealthy}, unhealthy ${value.tasksUnhealthy}` : "no checks"],
              ["Needs", `${oneDecimal(value.cpus)} CPUs, ${megabytes(value.mem)}`],
              ["Version", localTime(value.version)],
            ]}
          />
          <p class="note">
            <code>{displayText(value.container?.docker?.image ?? value.cmd ?? "", 500)}</code>
          </p>
          <Tasks id={id} tasks={value.tasks} done={done} log={setLog} />
          {log && <TaskLog source={{ id: log.id, agent: log.slaveId }} close={() => setLog(undefined)} />}
        </>
      )}
    </Panel>
  );
}

function Tasks(props: { id: string; tasks: Task[]; done: () => void; log: (task: Task) => void }) {
  const columns: Column<Task>[] = [
    { title: "Task", width: "3fr", cell: ({ id }) => <span title={displayText(id, 300)}>{displayText(shortId(id), 100)}</span> },
    {
      title: "State",
      width: "6rem",
      cell: (task) => {
        const failing = task.healthCheckResults?.find(({ alive }) => !alive);
        const state = task.state.replace(/^TASK_/, "").toLowerCase();
        if (failing) return <span title={displayText(failing.lastFailureCause, 300)}><Badge tone="bad">unhealthy</Badge></span>;
        return <Badge tone={state === "running" ? "good" : "info"}>{state}</Badge>;
      },
    },
    { title: "Host", width: "2fr", cell: ({ host, ports }) => displayText(`${host}${ports?.length ? `:${ports.join(",")}` : ""}`, 100) },
    { title: "Since", width: "5rem", cell: ({ startedAt, stagedAt }) => elapsedSince(startedAt ?? stagedAt) },
    {
      title: "",
      width: "6.5rem",
      end: true,
      cell: (task) => (
        <span class="buttons">
          <button type="button" onClick={() => props.log(task)} aria-label={`Log of ${displayText(task.id, 200)}`}>
            Log
          </button>
          <Action
            label="Kill"
            danger
            question={`Kill ${displayText(task.id, 200)}?`}
            detail="The task is replaced by another one."
            run={async () => {
              await change("DELETE", api(`/v2/apps${appPath(props.id)}/tasks/${encodeURIComponent(task.id)}`));
              return `${displayText(task.id, 200)} is being killed.`;
            }}
            done={props.done}
          />
        </span>
      ),
    },
  ];
  return (
    <>
      <h3>Tasks</h3>
      <Table label="Tasks" rows={props.tasks} columns={columns} id={({ id }) => id} height={10} empty="No task is launched." />
    </>
  );
}

/** Removes the name of the app from an instance's id. */
function shortId(id: string): string {
  const at = id.search(/\.(instance-|[0-9a-f]{8}-)/);
  return at < 0 ? id : id.slice(at + 1).replace(/^instance-/, "");
}

function TaskLog({ source, close }: { source: LogSource; close: () => void }) {
  const info = useLive("info", (signal) => get<{ frameworkId: string | null }>(api("/v2/info"), signal), 60_000);
  const framework = info.value?.frameworkId;
  return (
    <section aria-label={`Log of ${displayText(source.id, 200)}`}>
      <h3>
        Log of {displayText(shortId(source.id), 100)}{" "}
        <button type="button" class="plain" onClick={close} aria-label="Close the log">
          ✕
        </button>
      </h3>
      {framework ? (
        <Log
          title={source.id}
          source={(stream, offset) => {
            const query = new URLSearchParams({ agent: source.agent, framework, task: source.id, stream });
            if (source.executor !== undefined) query.set("executor", source.executor);
            if (offset !== undefined) query.set("offset", String(offset));
            return `/v1/cluster/log?${query.toString()}`;
          }}
        />
      ) : (
        <Empty>{info.error ? displayText(info.error.message) : "Loading…"}</Empty>
      )}
    </section>
  );
}

type PanelError = Parameters<typeof Panel>[0]["error"];

function Deployments(props: { list: Deployment[] | undefined; error?: PanelError; refresh: () => void }) {
  const { list } = props;
  return (
    <Panel title="Deployments" error={props.error} loading={!list}>
      {list?.length === 0 && <Empty>No deployment is running.</Empty>}
      <ul class="items">
        {list?.slice(0, 50).map((deployment) => (
          <DeploymentItem key={deployment.id} deployment={deployment} refresh={props.refresh} />
        ))}
      </ul>
      {list && list.length > 50 && <Empty>{list.length - 50} more</Empty>}
    </Panel>
  );
}

function DeploymentItem({ deployment, refresh }: { deployment: Deployment; refresh: () => void }) {
  const { id, currentStep, totalSteps, currentActions, canary } = deployment;
  const subjects = [...deployment.affectedApps, ...(deployment.affectedPods ?? [])];
  const path = api(`/v2/deployments/${encodeURIComponent(id)}`);
  const actions = currentActions.map(({ action, app, pod }) => `${action} ${app ?? pod ?? ""}`);
  return (
    <li>
      <div class="line">
        <b>{displayText(subjects.slice(0, 3).join(", "), 200)}{subjects.length > 3 && ` and ${subjects.length - 3} more`}</b>
        <span class="buttons">
          {canary?.state === "held" && (
            <Action
              label="Continue"
              question="Continue the restart?"
              detail={`${displayText(canary.instances, 40)} new instances are healthy; the others are replaced now.`}
              run={async () => {
                await change("POST", `${path}/continue`);
                return `Deployment ${id} continues.`;
              }}
              done={refresh}
            />
          )}
          <Action
            label="Roll back"
            danger
            question="Roll the deployment back?"
            detail="A new deployment restores the previous definitions."
            run={async () => `Deployment ${id} is rolled back${deploymentNote(await change("DELETE", path))}.`}
            done={refresh}
          />
        </span>
      </div>
      <progress value={currentStep - 0.5} max={totalSteps} aria-label={`Step ${currentStep} of ${totalSteps}`} />
      <small>
        Step {currentStep} of {totalSteps}: {displayText(actions.slice(0, 3).join(", "), 300)}
        {canary && ` · canary ${displayText(canary.state, 20)}`}
      </small>
    </li>
  );
}

function Waiting(props: { queue: Queue | undefined; error?: PanelError; first?: string; refresh: () => void }) {
  const name = (item: QueueItem) => item.app?.id ?? item.pod?.id ?? "";
  const words = props.queue?.words ?? {};
  const list = [...(props.queue?.queue ?? [])].sort((a, b) => Number(name(b) === props.first) - Number(name(a) === props.first));
  return (
    <Panel title="Waiting" error={props.error} loading={!props.queue}>
      {list.length === 0 && <Empty>No instance is waiting.</Empty>}
      <ul class="items">
        {list.slice(0, 50).map((item) => (
          <li key={name(item)}>
            <div class="line">
              <a href={`#/apps${appPath(name(item))}`}>
                <b>{displayText(name(item), 200)}</b>
              </a>
              <span>
                {item.count} waiting for {elapsedSince(item.since)}
                {!item.delay.overdue && (
                  <Action
                    label="Launch now"
                    question={`Launch ${displayText(name(item), 200)} now?`}
                    detail="The delay after its failures ends."
                    run={async () => {
                      await change("DELETE", api(`/v2/queue${appPath(name(item))}/delay`));
                      return `${displayText(name(item), 200)} is launched without its delay.`;
                    }}
                    done={props.refresh}
                  />
                )}
              </span>
            </div>
            <small>{displayText(waitingSummary(item, words), 500)}</small>
            <details>
              <summary>Condition by condition</summary>
              <ul class="conditions">
                {conditions(item, words).map(({ label, advice, declined, processed }) => (
                  <li key={label} class={declined > 0 ? "bad" : processed > 0 ? "good" : "dull"} title={declined > 0 ? advice : undefined}>
                    <span>{label}</span>
                    <span>
                      {processed === 0 ? "not tested" : declined > 0 ? `failed on ${declined} of ${processed} offers` : `passed on ${processed} offers`}
                    </span>
                  </li>
                ))}
              </ul>
              {item.app?.constraints?.map((constraint, at) => (
                <p key={at}>
                  <code>{displayText(constraint.join(" "), 200)}</code> rejected {item.reasons?.last_constraints[at] ?? 0} agents
                </p>
              ))}
              {item.reasons?.message && <p>{displayText(item.reasons.message)}</p>}
            </details>
          </li>
        ))}
      </ul>
      {list.length > 50 && <Empty>{list.length - 50} more</Empty>}
    </Panel>
  );
}

function Pods({ pods, refresh }: { pods: Pod[]; refresh: () => void }) {
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
      cell: ({ id }) => (
        <Action
          label="Delete"
          danger
          question={`Delete ${displayText(id, 200)}?`}
          detail="All instances are killed and the definition is deleted."
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
    { title: "Host", width: "2fr", cell: ({ instance }) => displayText(instance.agentHostname ?? "–", 100) },
    { title: "Since", width: "5rem", cell: ({ statusSince }) => elapsedSince(statusSince) },
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
