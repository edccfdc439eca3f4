// Whether a task's answer contains a word.

// What the operator may write under [config]: JSON Schema 2020-12.
const SCHEMA = {
  type: "object",
  properties: { word: { type: "string", minLength: 1 } },
  required: ["word"],
  additionalProperties: false,
};

let word = "";

// What the host asks of every plugin.
export const about = {
  describe() {
    return { name: "{{name}}", version: "0.1.0", summary: "{{summary}}", configSchema: JSON.stringify(SCHEMA) };
  },

  // Asked once of every instance. The document has passed the schema.
  configure(config) {
    word = JSON.parse(config).word;
  },
};

// One look at one task. It does nothing itself: it says what to do next, and the host does it.
class Attempt {
  constructor(request) {
    this.request = request;
  }

  // Asked first without an answer, then with the answer to each step.
  next(last) {
    if (last === undefined) return this.ask();
    if (last.tag !== "http") return failed("internal", "an answer to something that was not asked");
    if (last.val.tag === "ok") {
      const { status, body } = last.val.val;
      const found = new TextDecoder().decode(body).includes(word);
      return { tag: "done", val: { tag: "custom", val: JSON.stringify({ found, status }) } };
    }
    const error = last.val.val.tag;
    const reason = error === "denied" || error === "timed-out" ? error : "unreachable";
    return failed(reason, `asking the task: ${error}`);
  }

  ask() {
    const { endpoint, path } = this.request;
    if (endpoint === undefined) return failed("invalid", "the check names no port");
    const request = {
      method: "GET",
      endpoint,
      path,
      headers: [],
      body: new Uint8Array(),
      maxBody: 64 * 1024,
      redirects: 0,
    };
    return { tag: "http", val: request };
  }
}

function failed(reason, message) {
  return { tag: "failed", val: { reason, message } };
}

export const probe = { Attempt };
