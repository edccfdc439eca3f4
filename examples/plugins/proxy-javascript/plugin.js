// Sends the internet traffic of a cluster's containers through a proxy: sets the variables of the script,
// which the processes that it starts inherit.
import { Bootstrap, component, Refused } from "transom-plugin/bootstrap";
import * as log from "transom-plugin/log";

// JSON Schema 2020-12 of the manifest's [config].
const schema = {
  type: "object",
  properties: {
    url: { type: "string", pattern: "^https?://[^/]+/?$" },
    except: { type: "array", items: { type: "string", minLength: 1 } },
  },
  required: ["url"],
  additionalProperties: false,
};

export class Proxy extends Bootstrap {
  static about = { name: "proxy-javascript", version: "0.1.0", summary: "sets the variables of an HTTP proxy", schema };

  constructor({ url, except = [] }) {
    super();
    this.variables = [
      ["HTTP_PROXY", url],
      ["HTTPS_PROXY", url],
      ["NO_PROXY", except.join(",")],
    ];
  }

  prepare(context, script) {
    if (script.length === 0) throw new Refused("there is no script to run");
    // Variables that the definition of the framework sets take precedence.
    const own = context.environment.map(([name]) => name.toUpperCase());
    const added = this.variables.filter(([name]) => !own.includes(name));
    log.debug(`${context.task}: ${added.length} variables`);
    return { script, environment: [...context.environment, ...added], arguments: context.arguments };
  }
}

export const { about, bootstrap } = component(Proxy);
