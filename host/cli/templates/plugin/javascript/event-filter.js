// Hides the events of some apps.
import { component, Filter, Refused } from "transom-plugin/events";

// JSON Schema 2020-12 of the manifest's [config].
const schema = {
  type: "object",
  properties: { hide: { type: "array", items: { type: "string", pattern: "^/" } } },
  additionalProperties: false,
};

export class AppFilter extends Filter {
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", schema };

  // Called once for every instance. The document matches the schema.
  constructor({ hide = [] }) {
    super();
    this.hide = hide;
  }

  // Called once for each distinct query. The subscriber receives the text of a rejection.
  open(query) {
    if (query.expression !== undefined) throw new Refused("this filter takes no expressions");
    return ({ kind, subject }) => {
      const hidden = this.hide.some((group) => below(subject, group));
      return query.wants(kind) && !hidden ? "pass" : "drop";
    };
  }
}

// Whether an app is the given app or belongs to the given group.
function below(app, group) {
  return app !== undefined && (app === group || app.startsWith(group + "/"));
}

export const { about, filter } = component(AppFilter);
