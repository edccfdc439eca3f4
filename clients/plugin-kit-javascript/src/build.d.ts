/**
 * Makes a component of a plugin's module: bundles it with what it imports, and writes the component to `out`. It is
 * what a project's `build.mjs` calls, which `transom plugin build` runs.
 */
export function build(options: {
  /** The module that exports the interfaces: `plugin.js`. */
  source: string;
  world: "check-probe" | "attribute-matcher" | "event-filter" | "bootstrap-handler";
  out: string;
}): Promise<void>;
