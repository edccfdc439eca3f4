/** The document of `/v1/overview`. Fields that a daemon does not send are absent. */

import { formatCount } from "./format";
import { link } from "./route";

export interface Service {
  name: string;
  ready: boolean;
  ports?: { name: string; address: string }[];
  framework?: { name: string; leader: string | null; leading: boolean; subscribed?: boolean };
  source?: string;
  summary?: Record<string, unknown> | null;
  waiting?: { name: string; instances: number; since: string | null }[];
  failing?: { name: string; since: string }[];
  deployments?: { id: string; subject: string; since?: string; step: number; steps: number }[];
}

export interface Amounts {
  total: number;
  used: number;
  offered: number;
}

export interface Problem {
  severity: string;
  source: string;
  message: string;
  advice: string;
  /** What has the problem, if the daemon says it. */
  subject?: string | null;
  since?: string | null;
  count?: number | null;
}

export interface Overview {
  version: string;
  api: number;
  hostname: string;
  started?: string;
  uptime_seconds: number;
  ready: boolean;
  services: Service[];
  cluster: {
    masters: string[];
    reachable: boolean | null;
    error: string | null;
    leader: string | null;
    version: string | null;
    agents: { total: number; active: number; inactive: string[] };
    resources: Record<string, Amounts>;
  };
  store?: {
    kind: string;
    server: string;
    reachable: boolean | null;
    error: string | null;
    milliseconds: number | null;
    durability: string;
    may_lose: string | null;
  };
  plugins?: {
    total: number;
    serving: number;
    refused: number;
    disabled: number;
    quarantined: number;
    shadows: number;
    canaries: number;
  };
  process: {
    resident_bytes: number;
    open_files: number;
    open_files_limit: number | null;
    threads: number;
    cpu_seconds: number;
  } | null;
  problems: Problem[];
}

/** The object that a problem is about, its page, and since when the problem exists. */
export interface Subject {
  name?: string;
  href: string;
  since?: string;
}

/** Pages about sources that are no service. */
const PAGES_OF_SOURCES: Partial<Record<string, string>> = { cluster: "cluster", store: "overview", process: "overview", plugins: "plugins" };

export function subjectOf(problem: Problem, overview: Overview): Subject {
  const service = overview.services.find(({ name }) => name === problem.source);
  const page = PAGES_OF_SOURCES[problem.source] ?? problem.source.split(".")[0] ?? "overview";
  const about = [...(service?.failing ?? []), ...(service?.waiting ?? [])];
  const deployments = service?.deployments ?? [];
  const id = problem.subject ?? (service && page === "apps" ? /(^|[\s`])(\/[^\s:,`]+)/.exec(problem.message)?.[2] : undefined);
  const deployment = deployments.find((one) => problem.message.includes(one.id));
  const since = problem.since ?? about.find(({ name }) => name === id)?.since ?? deployment?.since ?? undefined;
  if (deployment && !problem.subject) return { name: deployment.subject, href: link("deployments", deployment.id), since };
  const named = page === "plugins" && !id ? /^(\S+) /.exec(problem.message)?.[1] : id;
  return { name: id, href: link(page, named), since };
}

/** What a service does at present, if it is ready; a service with nothing to do says so. */
export function activity(service: Service): { text: string; idle: boolean } {
  const summary = service.summary ?? {};
  const number = (name: string) => (typeof summary[name] === "number" ? (summary[name] as number) : 0);
  const kind = service.name.split(".")[0];
  if (service.framework && !service.framework.leading) return { text: "standby", idle: false };
  if (kind === "apps") {
    const wanted = number("instances_wanted");
    if (number("apps") + number("pods") === 0) return { text: "no app is defined", idle: true };
    const running = `${formatCount(number("instances_running"))} of ${formatCount(wanted)} instances running`;
    return { text: wanted === 0 ? "all apps are suspended" : running, idle: number("instances_running") === 0 };
  }
  if (kind === "workflow") {
    const [running, queued] = [number("running"), number("queued")];
    if (running + queued === 0) return { text: "no job runs or waits", idle: true };
    return { text: `${formatCount(running)} running, ${formatCount(queued)} waiting`, idle: running === 0 };
  }
  if (kind === "kubernetes") {
    const [running, wanted] = [number("running"), number("wanted")];
    const up = summary.ready === true ? "" : ", the orchestrator does not answer";
    return { text: running === 0 ? `nothing of ${formatCount(wanted)} runs` : `${formatCount(running)} of ${formatCount(wanted)} members running${up}`, idle: running === 0 };
  }
  if (kind === "discovery") return { text: `${formatCount(number("records"))} records, ${formatCount(number("queries"))} queries answered`, idle: number("records") === 0 };
  return { text: "", idle: false };
}

/** The version of the document that this dashboard reads. */
export const API_VERSION = 1;
