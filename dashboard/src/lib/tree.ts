/** Apps as a tree of groups, flattened into the rows that are shown. */

export interface App {
  id: string;
  cmd?: string;
  instances: number;
  cpus: number;
  mem: number;
  disk: number;
  gpus: number;
  tasksStaged: number;
  tasksRunning: number;
  tasksHealthy: number;
  tasksUnhealthy: number;
  deployments: { id: string }[];
  healthChecks?: unknown[];
  container?: { docker?: { image?: string } };
  version?: string;
  versionInfo?: { lastScalingAt: string; lastConfigChangeAt: string };
  labels?: Record<string, string>;
  /** What fails of it, if something does. */
  failing?: { message: string };
}

export interface Sums {
  apps: number;
  instances: number;
  running: number;
  unhealthy: number;
}

export type Row =
  | { kind: "group"; id: string; name: string; depth: number; open: boolean; sums: Sums }
  | { kind: "app"; id: string; name: string; depth: number; app: App };

interface Group {
  id: string;
  groups: Map<string, Group>;
  apps: App[];
  sums: Sums;
}

function emptyGroup(id: string): Group {
  return { id, groups: new Map(), apps: [], sums: { apps: 0, instances: 0, running: 0, unhealthy: 0 } };
}

function addToSums(sums: Sums, app: App): void {
  sums.apps += 1;
  sums.instances += app.instances;
  sums.running += app.tasksRunning;
  sums.unhealthy += app.tasksUnhealthy;
}

/** Which apps are shown. */
export interface Filter {
  /** A part of the id. */
  text: string;
  /** A label, as `name` or `name=value`. */
  label?: string;
  state?: string;
  /** Only apps with a problem. */
  problems?: boolean;
}

const PROBLEMS: readonly Health[] = ["failing", "unhealthy", "waiting"];

export function isShown(app: App, { text, label, state, problems }: Filter): boolean {
  if (text && !app.id.toLowerCase().includes(text.toLowerCase())) return false;
  if (label) {
    const [name = "", value] = label.split(/=(.*)/s);
    const found = app.labels?.[name.trim()];
    if (found === undefined || (value !== undefined && found !== value.trim())) return false;
  }
  if (state && appHealth(app) !== state) return false;
  return !problems || PROBLEMS.includes(appHealth(app));
}

/** The rows of the tree, without the contents of groups in `closed`. */
export function treeRows(apps: App[], closed: ReadonlySet<string>, filter: Filter): Row[] {
  const root = emptyGroup("");
  const filtered = filter.text !== "" || !!filter.label || !!filter.state || !!filter.problems;
  for (const app of apps) {
    if (filtered && !isShown(app, filter)) continue;
    const parts = app.id.split("/").filter((part) => part !== "");
    let group = root;
    for (const part of parts.slice(0, -1)) {
      let next = group.groups.get(part);
      if (!next) group.groups.set(part, (next = emptyGroup(`${group.id}/${part}`)));
      addToSums(next.sums, app);
      group = next;
    }
    group.apps.push(app);
  }
  const result: Row[] = [];
  const walk = (group: Group, depth: number) => {
    for (const [name, child] of [...group.groups].sort(([a], [b]) => compare(a, b))) {
      const open = filtered || !closed.has(child.id);
      result.push({ kind: "group", id: child.id, name, depth, open, sums: child.sums });
      if (open) walk(child, depth + 1);
    }
    for (const app of group.apps.sort((a, b) => compare(a.id, b.id))) {
      result.push({ kind: "app", id: app.id, name: app.id.split("/").pop() ?? app.id, depth, app });
    }
  };
  walk(root, 0);
  return result;
}

function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export type Health = "healthy" | "failing" | "unhealthy" | "waiting" | "suspended" | "deploying" | "running";

/** The state of an app in one word. */
export function appHealth(app: App): Health {
  if (app.failing && app.instances > 0) return "failing";
  if (app.tasksUnhealthy > 0) return "unhealthy";
  if (app.instances === 0) return "suspended";
  if (app.tasksRunning < app.instances) return app.tasksStaged > 0 ? "deploying" : "waiting";
  if (app.deployments.length > 0) return "deploying";
  return app.healthChecks?.length ? "healthy" : "running";
}
