import assert from "node:assert/strict";
import test from "node:test";
import { Refused } from "transom-plugin/bootstrap";
import { HostPrinter } from "./plugin.js";

const context = { role: "agent", number: 0, host: "a", environment: [], arguments: [] };
const prepare = (script) => new HostPrinter({}).prepare(context, new TextEncoder().encode(script));

test("the host is printed first", () => {
  const { script, environment } = prepare("exec run");
  assert.equal(new TextDecoder().decode(script), "echo 'agent 0 on a'\nexec run");
  assert.deepEqual(environment, [["TRANSOM_ROLE", "agent"]]);
});

test("a container needs a script", () => assert.throws(() => prepare(""), Refused));
