// Places tasks by ["attribute", "IS", "value"], and nowhere where maintenance is done.
import { component, Matcher, OWN_RULE } from "transom-plugin/matcher";

export class Places extends Matcher {
  // Without a schema it takes no configuration.
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}" };

  // Called when a definition is posted: the errors of its constraints.
  validate(constraints) {
    const message = 'expected ["attribute", "IS", "value"]';
    return constraints.flatMap((it, constraint) => (understood(it) ? [] : [{ constraint, message }]));
  }

  // The first constraint that an agent does not satisfy, or a rule of this matcher's own; undefined: it fits.
  refusal(task, agent) {
    const at = task.constraints.findIndex((it) => !understood(it) || agent.text(it.field) !== it.operand);
    if (at >= 0) return at;
    return agent.text("maintenance") === "true" ? OWN_RULE : undefined;
  }
}

// Expressions are texts.
function understood({ operator, operand }) {
  return operator === "IS" && operand !== undefined;
}

export const { about, matcher } = component(Places);
