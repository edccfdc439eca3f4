/** Rules about apps, problems and addresses. */

import { describe, expect, test } from "vitest";
import { type AppDetail, dependents, dnsName, healthOf, oldTasks } from "./apps";
import { type Overview, type Service, activity, subjectOf } from "./overview";
import { link, parseRoute } from "./route";
import { type Item, search } from "./search";
import { type App, isShown } from "./tree";

describe("address", () => {
  test("names page, object and filters, and survives any name", () => {
    const { page, rest, query } = parseRoute("#/apps/shop/a%20b%3F?q=x&label=a%3Db?c");
    expect([page, rest, query.get("q"), query.get("label")]).toEqual(["apps", "shop/a b?", "x", "a=b?c"]);
    expect(parseRoute("#/apps/%E0%A4%A").rest).toBe("%E0%A4%A");
    const hostile = "/<img src=x>?#%/\u202ex";
    expect(`/${parseRoute(link("apps", hostile)).rest}`).toBe(hostile);
  });
});

describe("apps", () => {
  const app = (more: Partial<App> = {}): App => ({
    id: "/shop/web", instances: 1, cpus: 1, mem: 1, disk: 0, gpus: 0, tasksStaged: 0, tasksRunning: 1, tasksHealthy: 0, tasksUnhealthy: 0, deployments: [], ...more,
  });

  test("filters select by id, label, state and problems", () => {
    const labelled = app({ labels: { team: "a=b" } });
    expect(isShown(labelled, { text: "WEB", label: "team=a=b" })).toBe(true);
    expect([isShown(labelled, { text: "", label: "team" }), isShown(labelled, { text: "", label: "team=x" }), isShown(labelled, { text: "db" })]).toEqual([true, false, false]);
    expect(isShown(app(), { text: "", problems: true })).toBe(false);
    expect(isShown(app({ tasksRunning: 0 }), { text: "", problems: true, state: "waiting" })).toBe(true);
    expect(isShown(app({ failing: { message: "crash loop" } }), { text: "", state: "failing" })).toBe(true);
  });

  test("dependents are those that name the app or a group of it", () => {
    const list = [{ id: "/a", dependencies: ["/shop"] }, { id: "/b", dependencies: ["/shop/web"] }, { id: "/c", dependencies: ["/shop/we"] }, { id: "/d" }];
    expect(dependents("/shop/web", list)).toEqual(["/a", "/b"]);
  });

  test("health names the check that fails and its cause", () => {
    const task = { id: "t", host: "h", slaveId: "S", state: "TASK_RUNNING" };
    expect(healthOf({ ...task, healthCheckResults: [{ alive: true }, { alive: false, consecutiveFailures: 9, lastFailureCause: "404 Not Found" }] }).reason).toBe("404 Not Found, 9 times");
    expect(healthOf({ ...task, checkFailure: { reason: "x", message: "no plugin" } })).toEqual({ word: "no result", tone: "warn", reason: "no plugin" });
    expect(healthOf({ ...task, checkResult: { command: { exitCode: 2 } } })).toEqual({ word: "check fails", tone: "warn", reason: "exit code 2" });
    expect(healthOf({ ...task, checkResult: { http: { statusCode: 200 } } }).word).toBe("healthy");
    expect(healthOf(task).word).toBe("");
  });

  test("tasks of an older definition are told apart", () => {
    const task = (id: string, version: string) => ({ id, host: "h", slaveId: "S", state: "TASK_RUNNING", version });
    const detail = { ...app({ versionInfo: { lastScalingAt: "3", lastConfigChangeAt: "2" } }), tasks: [task("old", "1"), task("new", "2"), task("scaled", "3")] } as AppDetail;
    expect(oldTasks(detail).map(({ id }) => id)).toEqual(["old"]);
  });

  test("name in DNS has the groups in reverse", () => {
    expect(dnsName("/shop/db/main", "marathon", "mesos.")).toBe("main.db.shop.marathon.mesos");
  });
});

describe("overview", () => {
  const service = (name: string, summary: object, more: Partial<Service> = {}): Service => ({ name, ready: true, summary: summary as Service["summary"], ...more });

  test("a service with nothing running says so", () => {
    expect(activity(service("apps", { apps: 0, pods: 0 }))).toEqual({ text: "no app is defined", idle: true });
    expect(activity(service("apps", { apps: 2, instances_wanted: 3, instances_running: 1 }))).toEqual({ text: "1 of 3 instances running", idle: false });
    expect(activity(service("apps", { apps: 2, instances_wanted: 3, instances_running: 0 })).idle).toBe(true);
    expect(activity(service("workflow", { running: 0, queued: 0 })).idle).toBe(true);
    expect(activity(service("kubernetes.blue", { running: 0, wanted: 3 }))).toEqual({ text: "nothing of 3 runs", idle: true });
    expect(activity(service("apps", {}, { framework: { name: "m", leader: "b:1", leading: false } })).text).toBe("standby");
  });

  test("a problem links to its subject and knows since when", () => {
    const overview = {
      services: [service("apps", {}, {
        failing: [{ name: "/crash", since: "2026-01-01T00:00:00Z" }],
        deployments: [{ id: "d-1", subject: "/a", since: "2026-01-02T00:00:00Z", step: 1, steps: 2 }],
      })],
    } as unknown as Overview;
    const of = (source: string, message: string, more = {}) => subjectOf({ severity: "warning", source, message, advice: "", ...more }, overview);
    expect(of("apps", "/crash: crash loop: failed")).toEqual({ name: "/crash", href: "#/apps/crash", since: "2026-01-01T00:00:00Z" });
    expect(of("apps", "the deployment d-1 of /a lasts")).toEqual({ name: "/a", href: "#/deployments/d-1", since: "2026-01-02T00:00:00Z" });
    expect(of("apps", "x", { subject: "/b", since: "2026-01-03T00:00:00Z" })).toEqual({ name: "/b", href: "#/apps/b", since: "2026-01-03T00:00:00Z" });
    expect(of("cluster", "no leading master").href).toBe("#/cluster");
    expect(of("plugins", "mine was rejected: no").href).toBe("#/plugins/mine");
  });
});

describe("find", () => {
  test("every word must fit, and names that begin with it come first", () => {
    const item = (kind: string, name: string, detail = ""): Item => ({ kind, name, detail, href: "#/" });
    const items = [item("task", "shop_web.1", "host-a"), item("app", "/other/myweb"), item("app", "/shop/web"), item("app", "/shop/website"), item("agent", "host-a")];
    expect(search(items, "web").map(({ name }) => name)).toEqual(["/shop/web", "/shop/website", "/other/myweb", "shop_web.1"]);
    expect(search(items, "host-a task").map(({ name }) => name)).toEqual(["shop_web.1"]);
    expect(search(items, " ")).toEqual([]);
    expect(search(Array.from({ length: 1000 }, (_, at) => item("app", `/a${at}`)), "a", 10)).toHaveLength(10);
  });
});
