// Hides the events of some apps.
import { component, Filter, Refused } from "transom-plugin/events";

// What the operator may write under [config]: JSON Schema 2020-12.
const schema = {
  type: "object",
  properties: { hide: { type: "array", items: { type: "string", pattern: "^/" } } },
  additionalProperties: false,
};

export class Hides extends Filter {
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", schema };

  // Called once in every instance. The document has passed the schema.
  constructor({ hide = [] }) {
    super();
    this.hide = hide;
  }

  // Called once for each distinct query. The subscriber receives the text of a refusal.
  open(query) {
    if (query.expression !== undefined) throw new Refused("this filter takes no expressions");
    return ({ kind, subject }) => {
      const hidden = this.hide.some((group) => below(subject, group));
      return query.wants(kind) && !hidden ? "pass" : "drop";
    };
  }
}

// Whether an app is this one, or in this group.
function below(app, group) {
  return app !== undefined && (app === group || app.startsWith(group + "/"));
}

export const { about, filter } = component(Hides);
