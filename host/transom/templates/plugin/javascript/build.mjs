// Makes a component of plugin.js: `node build.mjs OUT.wasm`, which `transom plugin build` runs.
import { build } from "transom-plugin/build";

await build({ source: "plugin.js", world: "{{world}}", out: process.argv[2] });
