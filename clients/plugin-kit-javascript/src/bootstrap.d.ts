import { AboutInterface, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig, Refused } from "./plugin.js";

/** The container that the script is prepared for. It contains no secrets. */
export interface Context {
  role: "server" | "agent" | "datastore";
  framework: string;
  task: string;
  /** 0 for the first container of its role. */
  number: number;
  /** Empty if the script is prepared before there is an offer; this is also true of `attributes`. */
  host: string;
  attributes: Pairs;
  image: string;
  /** Host port and container port; the host port is 0 before there is an offer. */
  ports: [number, number][];
  source: string;
  /** Lower-case hexadecimal SHA-256 of the script. */
  digest: string;
  environment: Pairs;
  arguments: string[];
  extensions: Pairs;
}

/** The prepared script, environment and arguments, which replace all those of the request. */
export interface Prepared {
  script: Uint8Array;
  environment: Pairs;
  arguments: string[];
}

/** A plugin of the world `bootstrap-handler`. */
export abstract class Bootstrap extends Plugin {
  static readonly world: "bootstrap-handler";
  /**
   * Prepares a container. The same arguments must always have the same result. If it throws `Refused`, the
   * container is not started.
   */
  abstract prepare(context: Context, script: Uint8Array): Prepared;
}

/** The exports of a component of this class: `export const { about, bootstrap } = component(MyHandler);`. */
export function component(plugin: PluginClass<Bootstrap>): { about: AboutInterface; bootstrap: object };
