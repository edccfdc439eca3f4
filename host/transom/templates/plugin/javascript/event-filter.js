// Hides the events of some apps.

// What the operator may write under [config]: JSON Schema 2020-12.
const SCHEMA = {
  type: "object",
  properties: { hide: { type: "array", items: { type: "string", pattern: "^/" } } },
  additionalProperties: false,
};

let hide = [];

// What the host asks of every plugin.
export const about = {
  describe() {
    return { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", configSchema: JSON.stringify(SCHEMA) };
  },

  // Asked once of every instance. The document has passed the schema.
  configure(config) {
    hide = JSON.parse(config).hide ?? [];
  },
};

// A query made ready: the same events always get the same decisions.
class View {
  constructor(kinds) {
    this.kinds = new Set(kinds);
  }

  // Asked once for each distinct query. A refusal is what the subscriber gets to read.
  static open(query) {
    if (query.expression !== undefined) throw "this filter takes no expressions";
    return new View(query.eventTypes);
  }

  // One decision for each event, in order.
  decide(events) {
    return events.map((event) => ({ tag: this.shows(event) ? "pass" : "drop" }));
  }

  shows(event) {
    if (this.kinds.size > 0 && !this.kinds.has(event.kind)) return false;
    return !hide.some((group) => below(event.subject, group));
  }
}

// Whether an app is this one, or in this group.
function below(app, group) {
  return app !== undefined && (app === group || app.startsWith(group + "/"));
}

export const filter = { View };
