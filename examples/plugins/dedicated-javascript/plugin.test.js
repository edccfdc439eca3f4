import assert from "node:assert/strict";
import test from "node:test";
import { Agent, AgentSet, OWN_RULE } from "transom-plugin/matcher";
import { Dedicated } from "./plugin.js";

const agent = (handle, attributes) => new Agent({ handle, id: `S${handle}`, hostname: "a", attributes });
const agents = new AgentSet(undefined, [
  agent(1, []),
  agent(2, [["dedicated", "/shop"]]),
  agent(3, [["dedicated", "/sho"]]),
  agent(4, [["dedicated", new Set(["/shop"])]]),
]);
const task = { runSpec: "/shop/web", constraints: [], placed: [] };
const candidates = [3, 2, 1, 4].map((handle) => ({ agent: handle, capacity: 2 }));

test("dedicated agents run the tasks of their group", () => {
  const rejections = new Dedicated({}).evaluate(agents, task, candidates);
  assert.deepEqual(rejections, [OWN_RULE, undefined, undefined, OWN_RULE]);
});

test("instances are placed in the order of the candidates", () => {
  assert.deepEqual(new Dedicated({}).place(agents, task, candidates, 3), [2, 2, 1]);
});
