// Makes a component of plugin.js: `node build.mjs OUT.wasm`, which `transom plugin build` runs.

import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { componentize } from "@bytecodealliance/componentize-js";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

const { component } = await componentize({
  sourcePath: here("plugin.js"),
  // Has to be absolute; the packages that the world needs are in its deps/.
  witPath: here("wit"),
  worldName: "attribute-matcher",
  // A plugin is given a log and nothing else, so nothing else is asked for.
  disableFeatures: ["clocks", "fetch-event", "http", "random", "stdio"],
});
await writeFile(process.argv[2], component);
