// `bootstrap-handler`: prepares the first script of a container of the Kubernetes framework.
import { described, InvalidConfig, Plugin, Refused } from "./plugin.js";

export { InvalidConfig, Refused };

export class Bootstrap extends Plugin {
  static world = "bootstrap-handler";

  prepare(_context, _script) {
    throw new Error(`${this.constructor.name} has no method \`prepare\``);
  }
}

/** The interfaces that a component of this class exports. */
export function component(plugin) {
  const { about, plugin: configured } = described(plugin);
  const bootstrap = {
    prepare(context, script) {
      try {
        return configured().prepare(context, script);
      } catch (error) {
        if (error instanceof Refused) throw { message: error.message, retry: error.retry };
        throw error;
      }
    },
  };
  return { about, bootstrap };
}
