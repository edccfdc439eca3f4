// Runs recorded cases on a plugin's class, without a daemon and without WebAssembly.
import { readFile } from "node:fs/promises";
import { InvalidConfig } from "../plugin.js";
import * as bootstrap from "./bootstrap.js";
import * as events from "./events.js";
import { configIn, casesIn, CasesError } from "./files.js";
import { CaseError, Fault, same } from "./forms.js";
import * as matcher from "./matcher.js";
import * as probe from "./probe.js";

export { CasesError };

const WORLDS = {
  "check-probe": probe.prepare,
  "attribute-matcher": matcher.prepare,
  "event-filter": events.prepare,
  "bootstrap-handler": bootstrap.prepare,
};

export async function readCases(path) {
  return casesIn(await readFile(path, "utf8"), String(path));
}

export async function configOf(manifest) {
  return configIn(await readFile(manifest, "utf8"), String(manifest));
}

export async function run(plugin, cases, { config, manifest } = {}) {
  if (config !== undefined && manifest !== undefined) {
    throw new TypeError("expected only one of `config` and `manifest`");
  }
  const given = Array.isArray(cases) ? cases : await readCases(cases);
  const document = manifest === undefined ? (config ?? {}) : await configOf(manifest);
  return given.map((it, at) => one(plugin, document, it, at + 1));
}

export async function check(plugin, cases, options) {
  const reports = await run(plugin, cases, options);
  const wrong = reports.filter((it) => it.verdict !== "passed").map((it) => `${it.name}: ${it.reason}`);
  if (wrong.length > 0) throw new Error(`${wrong.length} of ${reports.length} cases failed\n${wrong.join("\n")}`);
}

function one(plugin, config, { name, ...given }, number) {
  const report = { name: typeof name === "string" ? name : `case ${number}`, verdict: "failed", found: null, expected: null, reason: null };
  try {
    const prepared = WORLDS[plugin.world](given);
    report.expected = prepared.expected ?? null;
    // A copy, so that a plugin cannot change the configuration of the next one.
    report.found = prepared.answer(plugin.configured(structuredClone(config)));
  } catch (error) {
    if (error instanceof InvalidConfig) throw error;
    const expected = error instanceof CaseError || error instanceof Fault;
    return { ...report, reason: expected ? error.message : `${error?.name ?? "Error"}: ${error?.message ?? error}` };
  }
  const { found, expected } = report;
  if (expected === null) {
    return { ...report, verdict: "differs", reason: `found ${shown(found)}, but the case has no expectation` };
  }
  if (same(found, expected)) return { ...report, verdict: "passed" };
  return { ...report, verdict: "differs", reason: `found ${shown(found)}, expected ${shown(expected)}` };
}

const shown = (answer) => JSON.stringify("expect" in answer ? answer.expect : answer);
