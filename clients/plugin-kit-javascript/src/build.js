// Makes a component of a plugin's module: bundles it with what it imports, and calls componentize-js.
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
// It imports `@bytecodealliance/preview2-shim` without depending on it: this package does.
import { componentize } from "@bytecodealliance/componentize-js";
import { rolldown } from "rolldown";

const WIT = fileURLToPath(new URL("../wit", import.meta.url));

/** The package of each world, below `wit`. */
const PACKAGES = {
  "check-probe": "probe",
  "attribute-matcher": "matcher",
  "event-filter": "events",
  "bootstrap-handler": "bootstrap",
};

export async function build({ source, world, out }) {
  if (PACKAGES[world] === undefined) {
    throw new TypeError(`the world is ${JSON.stringify(world)}; expected one of ${Object.keys(PACKAGES).join(", ")}`);
  }
  const folder = await mkdtemp(join(tmpdir(), "transom-plugin-"));
  try {
    // The package of the world, with the one that it depends on in `deps`.
    const wit = join(folder, "wit");
    await cp(join(WIT, PACKAGES[world], await newest(PACKAGES[world])), wit, { recursive: true, dereference: true });
    await cp(join(WIT, "plugin", await newest("plugin")), join(wit, "deps", "plugin"), {
      recursive: true,
      dereference: true,
    });
    const module = join(folder, "plugin.js");
    await bundle(resolve(source), module);
    const { component } = await componentize({
      sourcePath: module,
      witPath: wit,
      worldName: world,
      // A plugin is given a log and nothing else, so nothing else is asked for.
      disableFeatures: ["clocks", "fetch-event", "http", "random", "stdio"],
    });
    await writeFile(out, component);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** The version of a package: a release of this kit has one. */
async function newest(name) {
  const versions = await readdir(join(WIT, name));
  return versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
}

async function bundle(source, out) {
  const made = await rolldown({
    input: source,
    // The host's.
    external: [/^transom:/, /^wasi:/],
    platform: "neutral",
    resolve: { conditionNames: ["transom-component", "import"], mainFields: ["module", "main"] },
  });
  try {
    await made.write({ file: out, format: "es", codeSplitting: false });
  } finally {
    await made.close();
  }
}
