// `event-filter`: decides which events a subscriber of the event stream receives.
import { described, InvalidConfig, Plugin, Refused } from "./plugin.js";

export { InvalidConfig, Refused };

export class Query {
  constructor({ eventTypes = [], expression, principal, extensions = [] } = {}) {
    Object.assign(this, { eventTypes, expression, principal, extensions });
  }

  wants(kind) {
    return this.eventTypes.length === 0 || this.eventTypes.includes(kind);
  }
}

export class Filter extends Plugin {
  static world = "event-filter";

  open(_query) {
    throw new Error(`${this.constructor.name} has no method \`open\``);
  }
}

/** The interfaces that a component of this class exports. */
export function component(plugin) {
  const { about, plugin: configured } = described(plugin);

  class View {
    constructor(decide) {
      this.one = decide;
    }

    static open(query) {
      try {
        return new View(configured().open(new Query(query)));
      } catch (error) {
        if (error instanceof Refused) throw error.message;
        throw error;
      }
    }

    decide(events) {
      return events.map((event) => decision(this.one(event)));
    }
  }

  return { about, filter: { View } };
}

function decision(of) {
  return of === "pass" || of === "drop" ? { tag: of } : { tag: "replace", val: JSON.stringify(of) };
}
