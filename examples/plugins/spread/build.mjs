// Builds a component from plugin.js. `transom plugin build` runs `node build.mjs OUT.wasm`.

import { writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { componentize } from "@bytecodealliance/componentize-js";

const here = (name) => fileURLToPath(new URL(name, import.meta.url));

const { component } = await componentize({
  sourcePath: here("plugin.js"),
  // Has to be absolute; the packages that the world needs are in its deps/.
  witPath: here("wit"),
  worldName: "attribute-matcher",
  // Without these features the component imports only the log.
  disableFeatures: ["clocks", "fetch-event", "http", "random", "stdio"],
});
await writeFile(process.argv[2], component);
