#!/usr/bin/env node
// `transom-plugin test PLUGIN.js CASES [--manifest NAME.toml] [--json]`: runs recorded cases on the plugin that a module
// exports. Exit code 1: a case did not pass.
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { InvalidConfig, Plugin } from "./plugin.js";
import { CasesError, run } from "./testing/index.js";

const USAGE = "usage: transom-plugin test PLUGIN.js CASES [--manifest NAME.toml] [--json]";

/** Returns the plugin class that a module exports; there must be exactly one. */
async function pluginOf(path) {
  const module = await import(pathToFileURL(resolve(path)));
  const classes = new Set(Object.values(module).filter((it) => it?.prototype instanceof Plugin));
  if (classes.size !== 1) throw new CasesError(`${path} exports ${classes.size} classes of plugins, expected one`);
  return [...classes][0];
}

async function main() {
  const { positionals, values } = parseArgs({
    allowPositionals: true,
    options: { manifest: { type: "string" }, json: { type: "boolean", default: false } },
  });
  const [command, path, cases] = positionals;
  if (command !== "test" || cases === undefined || positionals.length > 3) throw new CasesError(USAGE);
  const reports = await run(await pluginOf(path), cases, { manifest: values.manifest });
  if (values.json) console.log(JSON.stringify(reports));
  else for (const it of reports) console.log(`${it.verdict.padEnd(8)}${it.name}${it.reason ? `: ${it.reason}` : ""}`);
  return reports.every((it) => it.verdict === "passed") ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  const told = error instanceof CasesError || error instanceof InvalidConfig || error?.code !== undefined;
  console.error(told ? error.message : error);
  process.exitCode = 2;
}
