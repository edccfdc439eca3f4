// Keeps what load tests do out of the event stream: as little as a plugin can be.
import { component, Filter } from "transom-plugin/events";

export class Quiet extends Filter {
  static about = {
    name: "smallest-javascript",
    version: "0.1.0",
    summary: "keeps what load tests do out of the event stream",
  };

  open(query) {
    return ({ kind, subject }) => (query.wants(kind) && !subject?.startsWith("/load/") ? "pass" : "drop");
  }
}

export const { about, filter } = component(Quiet);
