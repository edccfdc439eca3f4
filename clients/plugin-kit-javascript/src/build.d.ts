/**
 * Builds a component from a plugin's module: bundles the module with its imports, and writes the component to
 * `out`. `transom plugin build` runs a project's `build.mjs`, which calls this function.
 */
export function build(options: {
  /** The module that exports the interfaces: `plugin.js`. */
  source: string;
  world: "check-probe" | "attribute-matcher" | "event-filter" | "bootstrap-handler";
  out: string;
}): Promise<void>;
