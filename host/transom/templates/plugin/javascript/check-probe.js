// Whether a task's answer contains a word.
import { component, http, Probe, text } from "transom-plugin/probe";

// What the operator may write under [config]: JSON Schema 2020-12.
const schema = {
  type: "object",
  properties: { word: { type: "string", minLength: 1 } },
  required: ["word"],
  additionalProperties: false,
};

export class LooksFor extends Probe {
  static about = { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", schema };

  // Called once in every instance. The document has passed the schema.
  constructor({ word }) {
    super();
    this.word = word;
  }

  // One look at one task. It does nothing itself: the host performs each step that it yields. A step that fails throws
  // IoError, which ends the attempt with the reason that fits.
  *attempt({ endpoint, path }) {
    const { status, body } = yield http({ endpoint, path });
    return { found: text(body).includes(this.word), status };
  }
}

export const { about, probe } = component(LooksFor);
