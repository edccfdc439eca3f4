// Restricts agents with the attribute `dedicated:/group` to that group's tasks, like `dedicated` in Rust.
import { component, Matcher, OWN_RULE } from "transom-plugin/matcher";

export class Dedicated extends Matcher {
  static about = {
    name: "dedicated-javascript",
    version: "0.1.0",
    summary: "restricts dedicated agents to the apps of their group",
  };

  refusal(task, agent) {
    const [, group] = agent.attributes.find(([name]) => name === "dedicated") ?? [];
    const own = group === undefined || (typeof group === "string" && `${task.runSpec}/`.startsWith(`${group}/`));
    return own ? undefined : OWN_RULE;
  }
}

export const { about, matcher } = component(Dedicated);
