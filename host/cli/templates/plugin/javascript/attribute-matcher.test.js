import assert from "node:assert/strict";
import test from "node:test";
import { Agent, OWN_RULE } from "transom-plugin/matcher";
import { AttributeMatcher } from "./plugin.js";

test("agents need the attribute", () => {
  const matcher = new AttributeMatcher({});
  const task = { runSpec: "/app", constraints: [{ field: "rack", operator: "IS", operand: "r1" }] };
  const refusal = (...attributes) => matcher.refusal(task, new Agent({ handle: 1, id: "S1", hostname: "a", attributes }));
  assert.equal(refusal(["rack", "r1"]), undefined);
  assert.equal(refusal(["rack", "r2"]), 0);
  assert.equal(refusal(["rack", "r1"], ["maintenance", "true"]), OWN_RULE);
});
