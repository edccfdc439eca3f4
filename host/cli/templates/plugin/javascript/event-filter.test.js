import assert from "node:assert/strict";
import test from "node:test";
import { Query, Refused } from "transom-plugin/events";
import { AppFilter } from "./plugin.js";

test("apps of the group are hidden", () => {
  const decide = AppFilter.configured({ hide: ["/load"] }).open(new Query());
  const found = ["/load/x", "/loader", undefined].map((subject) => decide({ kind: "app_terminated_event", subject }));
  assert.deepEqual(found, ["drop", "pass", "pass"]);
});

test("expressions are rejected", () => {
  assert.throws(() => new AppFilter({}).open(new Query({ expression: "true" })), Refused);
});
