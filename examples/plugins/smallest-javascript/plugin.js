// Keeps the events of load tests out of the event stream. This is the smallest possible plugin.
import { component, Filter } from "transom-plugin/events";

export class Quiet extends Filter {
  static about = {
    name: "smallest-javascript",
    version: "0.1.0",
    summary: "keeps the events of load tests out of the event stream",
  };

  open(query) {
    return ({ kind, subject }) => (query.wants(kind) && !subject?.startsWith("/load/") ? "pass" : "drop");
  }
}

export const { about, filter } = component(Quiet);
