/** The events of the apps service as sentences. */

import { displayText } from "./format";
import { link } from "./route";

export interface Sentence {
  text: string;
  /** The page about the subject. */
  href?: string;
}

type Fields = Record<string, unknown>;

const text = (value: unknown, max = 200) => displayText(value, max);

/** The id of the plan's first subject, and how many more there are. */
function subjects(fields: Fields): string {
  const plan = (fields.plan ?? {}) as { steps?: { actions?: { app?: string; pod?: string }[] }[] };
  const names = (plan.steps ?? []).flatMap((step) => step.actions ?? []).map((action) => action.app ?? action.pod ?? "");
  const distinct = [...new Set(names.filter((name) => name !== ""))];
  return distinct.length > 1 ? `${text(distinct[0])} and ${distinct.length - 1} more` : text(distinct[0] ?? "");
}

const STATES: Partial<Record<string, string>> = {
  TASK_STAGING: "is being sent to its agent", TASK_STARTING: "starts", TASK_RUNNING: "runs", TASK_KILLING: "is being killed",
  TASK_FINISHED: "has finished", TASK_FAILED: "has failed", TASK_KILLED: "was killed", TASK_ERROR: "was rejected", TASK_LOST: "is lost",
  TASK_DROPPED: "was not launched", TASK_UNREACHABLE: "cannot be reached", TASK_GONE: "is gone", TASK_GONE_BY_OPERATOR: "is gone with its agent",
};

/** What became of a task. */
function taskState(state: unknown): string {
  return STATES[String(state)] ?? `is ${text(state, 40).replace(/^TASK_/, "").toLowerCase()}`;
}

/** What an event says; the last form fits every kind. */
export function sentence(type: string, data: string): Sentence {
  let fields: Fields = {};
  try {
    const parsed: unknown = JSON.parse(data);
    if (parsed && typeof parsed === "object") fields = parsed as Fields;
  } catch {
    return { text: text(data) };
  }
  const app = fields.appId ?? fields.runSpecId;
  const href = typeof app === "string" ? link("apps", app) : undefined;
  const about = (words: string): Sentence => ({ text: words, href });
  const host = fields.host === undefined ? "" : ` on ${text(fields.host, 80)}`;
  switch (type) {
    case "status_update_event": {
      const message = fields.message ? `: ${text(fields.message)}` : "";
      return about(`A task of ${text(app)}${host} ${taskState(fields.taskStatus)}${message}`);
    }
    case "instance_changed_event":
      return about(`An instance of ${text(app)}${host} is ${text(fields.condition, 40).toLowerCase()}`);
    case "instance_health_changed_event":
      return about(`An instance of ${text(app)} is ${fields.healthy === true ? "healthy" : fields.healthy === false ? "unhealthy" : "without a result of its health check"}`);
    case "health_status_changed_event":
      return about(`A task of ${text(app)} is ${fields.alive === true ? "healthy" : "unhealthy"}`);
    case "failed_health_check_event":
      return about(`A health check of ${text(app)} failed`);
    case "unhealthy_instance_kill_event":
    case "unhealthy_task_kill_event":
      return about(`A task of ${text(app)}${host} is killed, because its health checks failed${fields.reason ? `: ${text(fields.reason)}` : ""}`);
    case "app_terminated_event":
      return { text: `${text(app)} is deleted, and its tasks have ended` };
    case "api_post_event": {
      const definition = (fields.appDefinition ?? {}) as Fields;
      const id = typeof definition.id === "string" ? definition.id : undefined;
      const from = fields.clientIp ? ` from ${text(fields.clientIp, 80)}` : "";
      return { text: `A request${from} changed ${id === undefined ? text(fields.uri) : text(id)}`, href: id === undefined ? undefined : link("apps", id) };
    }
    case "deployment_info":
      return { text: `A deployment of ${subjects(fields)} has begun a step`, href: deployment(fields) };
    case "deployment_step_success":
    case "deployment_step_failure":
      return { text: `A step of the deployment of ${subjects(fields)} has ${type.endsWith("success") ? "ended" : "failed"}`, href: deployment(fields) };
    case "deployment_success":
      return { text: `The deployment ${subjects(fields) ? `of ${subjects(fields)}` : text(fields.id, 60)} has succeeded` };
    case "deployment_failed":
      return { text: `The deployment ${subjects(fields) ? `of ${subjects(fields)}` : text(fields.id, 60)} has failed${fields.reason ? `: ${text(fields.reason)}` : ""}` };
    case "group_change_success":
      return { text: `The group ${text(fields.groupId)} has changed` };
    case "group_change_failed":
      return { text: `The group ${text(fields.groupId)} has not changed: ${text(fields.reason)}` };
    case "event_stream_attached":
    case "event_stream_detached":
      return { text: `A reader of events at ${text(fields.remoteAddress, 80)} has ${type === "event_stream_attached" ? "connected" : "disconnected"}` };
    case "event_stream_gap":
      return { text: `Earlier events are missing: ${text(fields.reason)}` };
    case "framework_message_event":
      return about("An executor has sent a message");
    case "pod_created_event":
    case "pod_updated_event":
    case "pod_deleted_event":
      return { text: `A request ${type.split("_")[1]} ${fields.uri ? text(fields.uri) : "a pod"}` };
  }
  const plugin = fields.plugin ?? fields.name;
  if (type.startsWith("plugin_") && plugin !== undefined) {
    const word = type.replace(/^plugin_|_event$/g, "").replace(/_/g, " ").replace("refused", "rejected");
    return { text: `The plugin ${text(plugin, 80)} was ${word}${fields.reason ? `: ${text(fields.reason)}` : ""}`, href: link("plugins", String(plugin)) };
  }
  const words = type.replace(/_event$/, "").replace(/_/g, " ");
  return about(app === undefined ? words : `${text(app)}: ${words}`);
}

function deployment(fields: Fields): string | undefined {
  const id = (fields.plan as { id?: unknown } | undefined)?.id;
  return typeof id === "string" ? link("deployments", id) : undefined;
}
