// Builds a component from plugin.js. `transom plugin build` runs `node build.mjs OUT.wasm`.
import { build } from "transom-plugin/build";

await build({ source: "plugin.js", world: "{{world}}", out: process.argv[2] });
