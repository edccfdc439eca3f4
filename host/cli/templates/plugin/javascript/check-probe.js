// Checks whether a task's response contains a word.
import { component, http, Probe, text } from "transom-plugin/probe";

// JSON Schema 2020-12 of the manifest's [config].
const schema = {
  type: "object",
  properties: { word: { type: "string", minLength: 1 } },
  required: ["word"],
  additionalProperties: false,
};

export class WordProbe extends Probe {
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", schema };

  // Called once for every instance. The document matches the schema.
  constructor({ word }) {
    super();
    this.word = word;
  }

  // One attempt at one task. It performs no I/O: it yields steps, and the host performs them. A failed step throws an
  // IoError. Unless it is caught, it ends the attempt with the corresponding reason.
  *attempt({ endpoint, path }) {
    const { status, body } = yield http({ endpoint, path });
    return { found: text(body).includes(this.word), status };
  }
}

export const { about, probe } = component(WordProbe);
