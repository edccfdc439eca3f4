// Places tasks by ["attribute", "IS", "value"], and never on an agent in maintenance.
import { component, Matcher, OWN_RULE } from "transom-plugin/matcher";

export class AttributeMatcher extends Matcher {
  // It has no schema, so it takes no configuration.
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}" };

  // Called when a definition is posted. Returns the errors in its constraints.
  validate(constraints) {
    const message = 'expected ["attribute", "IS", "value"]';
    return constraints.flatMap((it, constraint) => (supported(it) ? [] : [{ constraint, message }]));
  }

  // Returns the index of the first constraint that the agent does not satisfy, OWN_RULE if the matcher rejects the
  // agent for another reason, or undefined if the task may run there.
  refusal(task, agent) {
    const at = task.constraints.findIndex((it) => !supported(it) || agent.text(it.field) !== it.operand);
    if (at >= 0) return at;
    return agent.text("maintenance") === "true" ? OWN_RULE : undefined;
  }
}

// Constraints that are expressions are strings, which have neither property: they are not supported.
function supported({ operator, operand }) {
  return operator === "IS" && operand !== undefined;
}

export const { about, matcher } = component(AttributeMatcher);
