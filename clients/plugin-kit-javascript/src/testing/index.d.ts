import { Json, Plugin, PluginClass } from "../plugin.js";

/** A file has no valid cases; the message names the place and the expected value. */
export class CasesError extends Error {}

/** The result of one case. */
export interface Report {
  /** Its name, or `case` and its number. */
  name: string;
  /** `failed`: a fault of the plugin, or an error in the case, prevented an answer. */
  verdict: "passed" | "differs" | "failed";
  /** The answer, as keys of a case. */
  found: Json | null;
  /** The expected answer, as keys of a case. Null: the case has none, or is invalid. */
  expected: Json | null;
  /** One line for people; null if it passed. */
  reason: string | null;
}

/** The plugin's configuration, or the manifest whose `[config]` it is. */
export type Options = { config?: Json; manifest?: string | URL };

/** The cases of a file: `NAME.toml` or `NAME.json`. */
export function readCases(path: string | URL): Promise<Json[]>;
/** The `[config]` of a manifest; empty if it has none. */
export function configOf(manifest: string | URL): Promise<Json>;

/**
 * Runs the cases of a file, or a list of cases, in their order, each on a new plugin. They are read, run and
 * compared as by `transom plugin test`, but without the sandbox and its limits. The configuration is not
 * validated with the plugin's schema; the host does that. A number that is written `1.0` equals `1`, as
 * everywhere in JavaScript.
 */
export function run(plugin: PluginClass<Plugin>, cases: string | URL | Json[], options?: Options): Promise<Report[]>;

/** Runs cases, and throws an error with the reasons if one of them does not pass. */
export function check(plugin: PluginClass<Plugin>, cases: string | URL | Json[], options?: Options): Promise<void>;
