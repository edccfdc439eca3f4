/** Documents of the apps service, and what pages derive from them. */

import { appPath, get, servicePath } from "./api";
import { displayText } from "./format";
import type { App, Health } from "./tree";
import type { Tone } from "../parts/basics";

export const api = (path: string) => servicePath("apps", path);

export interface Deployment {
  id: string;
  version: string;
  affectedApps: string[];
  affectedPods?: string[];
  currentStep: number;
  totalSteps: number;
  steps?: { actions: DeploymentAction[] }[];
  currentActions: DeploymentAction[];
  canary?: { state: string; instances: string; heldSince: string | null };
  deadline?: string | null;
}

export interface DeploymentAction {
  action: string;
  app?: string;
  pod?: string;
}

export interface HealthResult {
  alive: boolean;
  consecutiveFailures?: number;
  lastFailure?: string | null;
  lastFailureCause?: string | null;
  lastSuccess?: string | null;
}

export interface Task {
  id: string;
  appId?: string;
  host: string;
  slaveId: string;
  state: string;
  ports?: number[];
  ipAddresses?: { ipAddress: string }[];
  startedAt?: string;
  stagedAt?: string;
  version?: string;
  healthCheckResults?: HealthResult[];
  checkResult?: { http?: { statusCode: number }; tcp?: { succeeded: boolean }; command?: { exitCode: number } } | null;
  checkFailure?: { reason: string; message: string } | null;
}

export interface TaskFailure {
  taskId: string;
  state: string;
  message: string;
  host: string;
  slaveId?: string;
  timestamp: string;
}

/** An app with everything that its page shows. */
export interface AppDetail extends App {
  tasks: Task[];
  dependencies?: string[];
  args?: string[];
  env?: Record<string, unknown>;
  constraints?: string[][];
  portDefinitions?: { port: number; name?: string; protocol?: string }[];
  lastTaskFailure?: TaskFailure;
  failing?: { kind: string; count: number; since: string; message: string; advice: string };
  readinessCheckResults?: { name: string; taskId: string; ready: boolean; lastResponse?: { status: number } }[];
  upgradeStrategy?: { minimumHealthCapacity: number; maximumOverCapacity: number };
}

export const TONES: Record<Health, Tone> = {
  healthy: "good", running: "good", unhealthy: "bad", failing: "bad", waiting: "warn", deploying: "info", suspended: "dull",
};

/** The task whose output is shown. A task of a group writes it to the sandbox of the group's executor. */
export interface LogSource {
  id: string;
  agent: string;
  executor?: string;
}

export function deploymentNote(answer: unknown): string {
  const id = (answer as { deploymentId?: string } | undefined)?.deploymentId;
  return id ? ` (deployment ${id})` : "";
}

/** Removes the name of the app from an instance's id. */
export function shortId(id: string): string {
  const at = id.search(/\.(instance-|[0-9a-f]{8}-)/);
  return at < 0 ? id : id.slice(at + 1).replace(/^instance-/, "");
}

/** `TASK_RUNNING` as `running`. */
export function stateWord(state: string): string {
  return displayText(state.replace(/^TASK_/, "").toLowerCase(), 30);
}

export function isEnded(state: string): boolean {
  return /FINISHED|FAILED|KILLED|ERROR|LOST|DROPPED|GONE/.test(state);
}

/** The name of a health in one word, and why; of the checks that fail first. */
export function healthOf(task: Task): { word: string; tone: Tone; reason: string } {
  const results = task.healthCheckResults ?? [];
  const failing = results.find(({ alive }) => !alive);
  if (failing) {
    const times = failing.consecutiveFailures ?? 0;
    const cause = failing.lastFailureCause ?? "no cause is known";
    return { word: "unhealthy", tone: "bad", reason: `${displayText(cause, 300)}${times > 1 ? `, ${times} times` : ""}` };
  }
  const check = task.checkResult;
  if (check?.http && (check.http.statusCode < 200 || check.http.statusCode > 299)) return { word: "check fails", tone: "warn", reason: `status ${check.http.statusCode}` };
  if (check?.tcp?.succeeded === false) return { word: "check fails", tone: "warn", reason: "no connection" };
  if (check?.command && check.command.exitCode !== 0) return { word: "check fails", tone: "warn", reason: `exit code ${check.command.exitCode}` };
  if (task.checkFailure) return { word: "no result", tone: "warn", reason: displayText(task.checkFailure.message, 300) };
  if (results.length > 0 || check) return { word: "healthy", tone: "good", reason: "" };
  return { word: "", tone: "dull", reason: "" };
}

/** The tasks of a definition that is not the newest one: a deployment replaces them. */
export function oldTasks(app: AppDetail): Task[] {
  const current = app.versionInfo?.lastConfigChangeAt ?? app.version ?? "";
  return app.tasks.filter(({ version }) => version !== undefined && version < current);
}

/** The apps that depend on an app, or on a group that contains it. */
export function dependents(id: string, apps: { id: string; dependencies?: string[] }[]): string[] {
  const needs = (target: string) => target === id || id.startsWith(target.endsWith("/") ? target : `${target}/`);
  return apps.filter((app) => app.id !== id && app.dependencies?.some(needs)).map((app) => app.id);
}

/** What a change of all instances of an app affects. */
export async function affected(app: App): Promise<string> {
  const { apps } = await get<{ apps: { id: string; dependencies?: string[] }[] }>(api("/v2/apps"));
  const names = dependents(app.id, apps);
  const instances = `${app.instances} ${app.instances === 1 ? "instance" : "instances"}`;
  if (names.length === 0) return `${instances}, no dependents`;
  const shown = names.slice(0, 5).map((name) => displayText(name, 100)).join(", ");
  const list = names.length > 5 ? `${shown} and ${names.length - 5} more` : shown;
  return `${instances}, ${names.length} ${names.length === 1 ? "dependent" : "dependents"}: ${list}`;
}

/** The name of an app in DNS, of the framework with this name in this domain. */
export function dnsName(id: string, framework: string, domain: string): string {
  const parts = id.split("/").filter((part) => part !== "").reverse();
  return [...parts, framework, domain.replace(/\.$/, "")].join(".");
}

export const pathOf = (id: string) => api(`/v2/apps${appPath(id)}`);
