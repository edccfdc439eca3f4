// Builds a component from a plugin's module: bundles the module with its imports, and calls componentize-js.
import { cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
// It imports `@bytecodealliance/preview2-shim` without depending on it, so this package depends on that.
import { componentize } from "@bytecodealliance/componentize-js";
import { rolldown } from "rolldown";

const WIT = fileURLToPath(new URL("../wit", import.meta.url));

/** The WIT package of each world, a folder in `wit`. */
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
    // The package of the world, with its dependency in `deps`.
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
      // The host provides a log and nothing else, so the component must not import anything else.
      disableFeatures: ["clocks", "fetch-event", "http", "random", "stdio"],
    });
    await writeFile(out, component);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** The newest version of a package. A release of this kit contains one version. */
async function newest(name) {
  const versions = await readdir(join(WIT, name));
  return versions.sort((a, b) => a.localeCompare(b, "en", { numeric: true })).at(-1);
}

async function bundle(source, out) {
  const made = await rolldown({
    input: source,
    // The host provides these modules.
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
