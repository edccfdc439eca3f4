// Makes every container print its host before it runs anything.
import { Bootstrap, component, Refused } from "transom-plugin/bootstrap";

export class HostPrinter extends Bootstrap {
  // It has no schema, so it takes no configuration.
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}" };

  // A pure function: the same arguments always give the same result.
  prepare(context, script) {
    if (script.length === 0) throw new Refused("there is no script to run");
    const { role, number, host, environment } = context;
    const greeting = new TextEncoder().encode(`echo '${role} ${number} on ${host}'\n`);
    return {
      script: new Uint8Array([...greeting, ...script]),
      environment: [...environment, ["TRANSOM_ROLE", role]],
      arguments: context.arguments,
    };
  }
}

export const { about, bootstrap } = component(HostPrinter);
