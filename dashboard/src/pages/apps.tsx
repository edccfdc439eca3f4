/** Apps, pods and groups: instances, health, deployments, and why apps and pods are waiting. */

import { useEffect, useMemo, useState } from "preact/hooks";
import { type Deployment, TONES, api } from "../lib/apps";
import { get } from "../lib/api";
import { megabytes, displayText, oneDecimal } from "../lib/format";
import { useLive, useThrottled } from "../lib/live";
import { link, useQuery } from "../lib/route";
import { follow } from "../lib/sse";
import { type App, type Filter, type Row, appHealth, isShown, treeRows } from "../lib/tree";
import type { Queue } from "../lib/waiting";
import { Badge, Panel, type PanelError } from "../parts/basics";
import { Deployments } from "../parts/deployments";
import { type Pod, Pods } from "../parts/pods";
import { type Column, Table } from "../parts/table";
import { Waiting } from "../parts/waiting";

/** Events after which lists are requested again. */
const CHANGE_EVENTS = [
  "deployment_info", "deployment_success", "deployment_failed", "deployment_step_success", "group_change_success",
  "app_terminated_event", "instance_health_changed_event", "status_update_event", "pod_created_event",
  "pod_updated_event", "pod_deleted_event",
];

const STATES = ["failing", "unhealthy", "waiting", "deploying", "healthy", "running", "suspended"];

export function Apps() {
  const apps = useLive("apps", async (signal) => {
    const path = api("/v2/apps?embed=apps.counts&embed=apps.deployments&embed=apps.failing");
    return (await get<{ apps: App[] }>(path, signal)).apps;
  }, 15_000);
  const deployments = useLive("deployments", (signal) =>
    get<Deployment[]>(api("/v2/deployments?embed=canary&embed=deadline"), signal), 5_000);
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

  return (
    <>
      <List apps={apps.value} error={apps.error} />
      <div class="columns">
        <Deployments list={deployments.value} error={deployments.error} refresh={refreshDeploymentsAndQueue} />
        <Waiting queue={queue.value} error={queue.error} refresh={refreshDeploymentsAndQueue} />
      </div>
      {pods.value && pods.value.length > 0 && <Pods pods={pods.value} refresh={pods.refresh} />}
    </>
  );
}

/** The pause before a list is requested because of an event; a long list is requested less often. */
function pauseOf(list: unknown[] = []): number {
  return list.length > 1000 ? 10_000 : 1_000;
}

/** The filters in the address. */
function useFilter() {
  const [text, setText] = useQuery("q");
  const [label, setLabel] = useQuery("label");
  const [state, setState] = useQuery("state");
  const [only, setOnly] = useQuery("only");
  const filter: Filter = useMemo(() => ({ text, label, state, problems: only === "problems" }), [text, label, state, only]);
  return { filter, setText, setLabel, setState, setOnly };
}

function List({ apps, error }: { apps: App[] | undefined; error: PanelError }) {
  const { filter, setText, setLabel, setState, setOnly } = useFilter();
  const [view, setView] = useQuery("view");
  const flat = view === "list";
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  const rows = useMemo((): Row[] => {
    if (!flat) return treeRows(apps ?? [], closed, filter);
    const found = (apps ?? []).filter((app) => isShown(app, filter));
    return found.map((app) => ({ kind: "app", id: app.id, name: app.id, depth: 0, app }));
  }, [apps, closed, filter, flat]);
  const toggle = (id: string) =>
    setClosed((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  // Only the list can be sorted: the tree has the order of its groups.
  const by = (value: (app: App) => string | number) => (flat ? (row: Row) => (row.kind === "app" ? value(row.app) : "") : undefined);
  const columns: Column<Row>[] = [
    {
      title: "App",
      width: "3fr",
      sort: by(({ id }) => id),
      cell: (row) => (
        <span class="name" style={{ paddingLeft: `${row.depth * 14}px` }}>
          {row.kind === "group" ? (
            <button type="button" class="plain" aria-expanded={row.open} onClick={() => toggle(row.id)}>
              {row.open ? "▾" : "▸"} {displayText(row.name, 200)}
            </button>
          ) : (
            <a href={link("apps", row.id)} title={displayText(row.id, 500)}>
              {displayText(row.name, 200)}
            </a>
          )}
        </span>
      ),
    },
    {
      title: "State",
      width: "6.5rem",
      sort: by((app) => STATES.indexOf(appHealth(app))),
      cell: (row) => {
        if (row.kind === "app") {
          const health = appHealth(row.app);
          return <span title={displayText(row.app.failing?.message, 500)}><Badge tone={TONES[health]}>{health}</Badge></span>;
        }
        const { apps: count, unhealthy } = row.sums;
        return unhealthy > 0 ? <Badge tone="bad">{unhealthy} unhealthy</Badge> : <small>{count} {count === 1 ? "app" : "apps"}</small>;
      },
    },
    {
      title: "Running",
      width: "5.5rem",
      end: true,
      sort: by(({ tasksRunning }) => tasksRunning),
      cell: (row) =>
        row.kind === "app"
          ? `${row.app.tasksRunning} / ${row.app.instances}`
          : `${row.sums.running} / ${row.sums.instances}`,
    },
    { title: "CPUs", width: "4rem", end: true, wide: true, sort: by(({ cpus }) => cpus), cell: (row) => (row.kind === "app" ? oneDecimal(row.app.cpus) : "") },
    { title: "Memory", width: "5.5rem", end: true, wide: true, sort: by(({ mem }) => mem), cell: (row) => (row.kind === "app" ? megabytes(row.app.mem) : "") },
    {
      title: "Labels",
      width: "2fr",
      wide: true,
      cell: (row) => {
        const text = row.kind === "app" ? Object.entries(row.app.labels ?? {}).map((pair) => pair.join("=")).join(" ") : "";
        return <small title={displayText(text, 500)}>{displayText(text, 200)}</small>;
      },
    },
  ];
  const filtered = filter.text || filter.label || filter.state || filter.problems;
  return (
    <Panel
      title={apps ? `Apps (${apps.length.toLocaleString("en-GB")})` : "Apps"}
      error={error}
      loading={!apps}
      aside={
        <span class="buttons">
          <button type="button" aria-pressed={filter.problems === true} onClick={() => setOnly(filter.problems ? "" : "problems")}>
            Only problems
          </button>
          <button type="button" aria-pressed={flat} onClick={() => setView(flat ? "" : "list")}>
            List
          </button>
          <select aria-label="State of apps" value={filter.state} onChange={(event) => setState(event.currentTarget.value)}>
            <option value="">every state</option>
            {STATES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
          <input type="search" class="short" placeholder="Label: name=value" aria-label="Filter apps by label" value={filter.label} onInput={(event) => setLabel(event.currentTarget.value)} />
          <input type="search" placeholder="Filter by id" aria-label="Filter apps by id" value={filter.text} onInput={(event) => setText(event.currentTarget.value)} />
        </span>
      }
    >
      <Table
        label="Apps and groups"
        rows={rows}
        columns={columns}
        id={(row) => `${row.kind}${row.id}`}
        empty={filtered ? "No app matches the filters." : "There are no apps. `transom apps create -f FILE` makes one."}
      />
    </Panel>
  );
}
