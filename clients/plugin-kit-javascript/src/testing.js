// Runs the attempts of a probe natively, in unit tests.
import assert from "node:assert/strict";
import { Failed, Outcome, Running, Step } from "./probe.js";

/** Maximum bytes of a custom result. */
const MAX_OUTCOME = 4096;

export const request = (fields = {}) => ({
  runSpec: "/app",
  task: "app.1",
  agent: "localhost",
  labels: [],
  ports: [],
  path: "/",
  settings: "{}",
  timeout: 20_000,
  extensions: [],
  ...fields,
});

export function attempt(probe, fields = {}, exchanges = []) {
  const running = new Running(probe, request(fields));
  let found = running.first();
  for (const [at, [expected, answer]] of exchanges.entries()) {
    assert.deepEqual(found, expected, `step ${at + 1}`);
    found = running.next(answer);
  }
  if (found instanceof Failed) return found;
  assert(!(found instanceof Step), `after the last answer it requests the step ${found.tag}; expected a result`);
  assert(found instanceof Outcome, `found ${found}; expected a step or a result`);
  const { tag, val } = found;
  if (tag === "http") assert(val >= 100 && val <= 599, `found the HTTP status ${val}; expected one from 100 to 599`);
  if (tag !== "custom") return found;
  const result = val === undefined ? undefined : JSON.parse(val);
  assert(result !== null && typeof result === "object" && !Array.isArray(result), `found ${val}; expected an object`);
  const size = Buffer.byteLength(val);
  assert(size <= MAX_OUTCOME, `the custom result has ${size} bytes; expected at most ${MAX_OUTCOME}`);
  return result;
}
