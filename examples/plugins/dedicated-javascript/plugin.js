// Agents with the attribute `dedicated:/group` take tasks of that group only, as `dedicated` in Rust does it.
import { component, Matcher, OWN_RULE } from "transom-plugin/matcher";

export class Dedicated extends Matcher {
  static about = {
    name: "dedicated-javascript",
    version: "0.1.0",
    summary: "agents that are dedicated to a group take its apps only",
  };

  refusal(task, agent) {
    const [, group] = agent.attributes.find(([name]) => name === "dedicated") ?? [];
    const own = group === undefined || (typeof group === "string" && `${task.runSpec}/`.startsWith(`${group}/`));
    return own ? undefined : OWN_RULE;
  }
}

export const { about, matcher } = component(Dedicated);
