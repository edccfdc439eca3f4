/** Texts that pages derive from what a task or the daemon writes. */

import { describe, expect, test } from "vitest";
import { spans } from "./ansi";
import { compare, definitionText } from "./compare";
import { withUnit } from "./history";
import { split } from "./output";
import { sentence } from "./sentences";

describe("colours of a terminal", () => {
  test("become styles, and other sequences are left out", () => {
    expect(spans("a\u001b[1;31mred\u001b[0m b\u001b[2J\u001b]0;title\u0007c")).toEqual([
      { text: "a", style: "" }, { text: "red", style: "fg1 bold" }, { text: " b", style: "" }, { text: "c", style: "" },
    ]);
    expect(spans("\u001b[38;5;196;4mx\u001b[24;92my\u001b[39;44mz")).toEqual([
      { text: "x", style: "underlined" }, { text: "y", style: "fg2" }, { text: "z", style: "bg4" },
    ]);
  });

  test("an incomplete sequence stays text, and no number becomes a class", () => {
    expect(spans("\u001b[31")).toEqual([{ text: "\u001b[31", style: "" }]);
    expect(spans("\u001b[999m<b>\u001b[38mx")).toEqual([{ text: "<b>", style: "" }, { text: "x", style: "" }]);
  });
});

describe("search", () => {
  test("finds in any case and keeps the rest", () => {
    expect(split("An error, ERROR", "error")).toEqual([
      { text: "An ", match: false }, { text: "error", match: true }, { text: ", ", match: false }, { text: "ERROR", match: true },
    ]);
    expect(split("abc", "")).toEqual([{ text: "abc", match: false }]);
    expect(split("İx", "x").map(({ text }) => text)).toEqual(["İ", "x"]);
  });
});

describe("compare", () => {
  test("shows what differs with a few lines around it, without what the daemon adds", () => {
    const app = (cpus: number, more = {}) => definitionText({ version: "1", tasksRunning: 3, id: "/a", cmd: "x", cpus, disk: 0, env: {}, fetch: [], labels: {}, mem: 32, ...more });
    expect(compare(app(1), app(1, { version: "2" }))).toEqual([]);
    expect(compare(app(1), app(2)).map(({ sign, text }) => `${sign} ${text.trim()}`)).toEqual([
      "  {", '  "cmd": "x",', '- "cpus": 1,', '+ "cpus": 2,', '  "disk": 0,', '  "env": {},', "… 5 equal lines",
    ]);
  });
});

describe("definition", () => {
  test("marks of direction are escapes in the editor, and survive it", () => {
    const text = definitionText({ id: "/a", cmd: "a\u202eb\u001b" });
    expect(text).toContain('"a\\u202eb\\u001b"');
    expect(JSON.parse(text)).toEqual({ id: "/a", cmd: "a\u202eb\u001b" });
  });
});

describe("units", () => {
  test("values are shown in the unit that people read", () => {
    expect([
      withUnit(null, "s"), withUnit(0, "1/s"), withUnit(0.0123, "s"), withUnit(2.25, "s"), withUnit(1536, "MB"), withUnit(1024 * 1024, "bytes"), withUnit(0.123, "cpus"), withUnit(1234.5, "1/min"),
    ]).toEqual(["–", "0/s", "12.3 ms", "2.3 s", "1.5 GB", "1 MB", "0.12 CPUs", "1,234.5/min"]);
  });
});

describe("sentences", () => {
  const of = (type: string, fields: object) => sentence(type, JSON.stringify({ eventType: type, ...fields }));

  test("events are told with their subject and a link", () => {
    expect(of("status_update_event", { appId: "/shop/web", taskStatus: "TASK_FAILED", host: "a", message: "status 3" })).toEqual({
      text: "A task of /shop/web on a has failed: status 3", href: "#/apps/shop/web",
    });
    expect(of("deployment_info", { plan: { id: "d-1", steps: [{ actions: [{ app: "/a" }] }, { actions: [{ app: "/b" }] }] } })).toEqual({
      text: "A deployment of /a and 1 more has begun a step", href: "#/deployments/d-1",
    });
    expect(of("plugin_refused_event", { plugin: "mine", reason: "too large" }).text).toBe("The plugin mine was rejected: too large");
    expect(of("some_new_event", { appId: "/a" }).text).toBe("/a: some new");
    expect(sentence("x", "no JSON").text).toBe("no JSON");
  });

  test("hidden characters in an event are made visible", () => {
    const { text, href } = of("status_update_event", { appId: "/<b>\u202e", taskStatus: "TASK_LOST", message: "\u001b[31m" });
    expect(text).toBe("A task of /<b>\\u202e is lost: \\u001b[31m");
    expect(href).toBe("#/apps/%3Cb%3E%E2%80%AE");
  });
});
