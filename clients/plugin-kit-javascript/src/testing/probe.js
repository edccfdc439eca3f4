// Cases of `check-probe`: a request, the answer to each step, and the result.
import { Failed, IoError, Outcome, Running, Step } from "../probe.js";
import {
  CaseError,
  data,
  Fault,
  flag,
  I32,
  isObject,
  list,
  oneOf,
  present,
  sameButForMasks,
  show,
  Table,
  table,
  text,
  textPairs,
  texts,
  U16,
  U32,
  U8,
  u64,
  written,
} from "./forms.js";

/** Maximum bytes of a custom result. */
const MAX_OUTCOME = 4096;
const REASONS = ["timed-out", "denied", "unreachable", "invalid", "internal", "plugin"];
/** Errors with a text. */
const DETAILED = ["tls", "protocol", "unavailable"];
const ERRORS = ["denied", "unresolved", "refused", "unreachable", "timed-out", "closed", ...DETAILED];
/** Headers that only the host sets. */
const OWN_HEADERS = [
  "host",
  "connection",
  "content-length",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];
/** The answer to each kind of step. */
const ANSWERS = { http: "http", connect: "connected", send: "sent", receive: "received", run: "ran" };
const NAMES = {
  http: "an HTTP exchange",
  connect: "a connection",
  send: "sending",
  receive: "receiving",
  run: "a command",
};

export function prepare(value) {
  const given = new Table(value, "case");
  const endpoint = given.take("endpoint", endpointOf);
  const previous = given.take("previous", expected);
  if (previous !== undefined && "failed" in previous) {
    throw new CaseError("`previous` is a failure; expected a result");
  }
  const request = {
    runSpec: given.take("run-spec", text, "/self-test"),
    task: given.take("task", text, "self-case.1"),
    agent: given.take("agent", text, "localhost"),
    labels: given.take("labels", textPairs, []),
    ports: given.take("ports", list(port), endpoint ? [{ protocol: "tcp", endpoint }] : []),
    endpoint,
    path: given.take("path", text, "/"),
    command: given.take("command", text),
    settings: JSON.stringify(given.take("settings", table, {})),
    previous: previous && outcomeOf(previous),
    timeout: given.take("timeout-millis", U32, 20_000),
    extensions: given.take("extensions", textPairs, []),
  };
  const steps = given.take("steps", list(givenStep));
  const answers = given.take("answers", list(givenAnswer), []);
  const expect = given.take("expect", expected);
  given.end();
  if (steps !== undefined && steps.length !== answers.length) {
    throw new CaseError(
      `\`steps\` has ${steps.length} members; expected one for each of the ${answers.length} answers`,
    );
  }

  const answer = (plugin) => {
    const running = new Running(plugin, request);
    let step = running.first();
    for (const [at, { kind, it }] of answers.entries()) {
      const found = end(step);
      if (found !== undefined) throw new Fault(`the attempt ended with ${JSON.stringify(found)} and left answers unused`);
      if (steps !== undefined) checkStep(step, steps[at], at);
      step = running.next(answerTo(step, kind, it));
    }
    const found = end(step);
    if (found === undefined) throw new Fault(`after the last answer it requests ${NAMES[step.tag]}`);
    return { expect: found };
  };
  return { answer, expected: expect && { expect } };
}

/** Returns the result of an attempt that has ended. */
function end(step) {
  if (step instanceof Failed) return { failed: step.reason };
  if (step instanceof Step) return undefined;
  if (!(step instanceof Outcome)) throw new Fault(`the attempt returned ${show(step)}; expected a step or an outcome`);
  const { tag, val } = step;
  if (tag === "http" && !(val >= 100 && val <= 599)) {
    throw new Fault(`${val} is not a valid HTTP status code: expected one from 100 to 599`);
  }
  if (tag !== "custom") return { [tag]: val };
  // The host reports the same failure.
  if (val !== undefined && Buffer.byteLength(val) > MAX_OUTCOME) return { failed: "plugin" };
  const found = val === undefined ? undefined : JSON.parse(val);
  if (!isObject(found)) throw new Fault("the custom outcome is not a JSON object");
  return { custom: found };
}

function answerTo(step, kind, it) {
  if (step.tag === "http" && !(kind === "error" && it.kind === "protocol")) {
    const own = step.val.headers.map(([name]) => name.toLowerCase()).find((name) => OWN_HEADERS.includes(name));
    if (own !== undefined) {
      throw new Fault(
        `it asks for an HTTP exchange with the header ${own}, which only the host may set; in service this step fails with \`protocol\``,
      );
    }
  }
  if (kind !== "error" && kind !== ANSWERS[step.tag]) {
    throw new Fault(`it requests ${NAMES[step.tag]}, the test answers \`${kind}\``);
  }
  if (kind === "sent") return it ? undefined : new IoError("closed");
  return it;
}

function checkStep(step, wanted, at) {
  const asked = asGiven(step);
  if (!sameButForMasks(wanted, asked)) {
    throw new Fault(`step ${at + 1}: it requests ${show(asked)}, expected ${show(wanted)}`);
  }
}

function asGiven({ tag, val }) {
  const tls = (it) => it && { "server-name": it.serverName, verify: it.verify };
  if (tag === "http") {
    const { method, endpoint, path, headers, body, maxBody, redirects } = val;
    const http = {
      method,
      to: shown(endpoint),
      tls: tls(val.tls),
      path,
      headers: headers.length > 0 ? headers : undefined,
      body: written(body),
      "max-body": maxBody,
      redirects,
    };
    return { http: present(http) };
  }
  if (tag === "connect") return { connect: present({ to: shown(val[0]), tls: tls(val[1]) }) };
  if (tag === "send") return { send: written(val) };
  return tag === "receive" ? { receive: val } : { [val.tag]: val.val };
}

const shown = ({ host, port }) => (host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`);

function givenStep(value, path) {
  const [kind, it] = oneOf(value, path);
  const where = `${path}.${kind}`;
  if (kind === "http") {
    const given = new Table(it, where);
    const headers = given.take("headers", textPairs, []);
    const found = present({
      method: given.need("method", text),
      to: given.need("to", text),
      tls: given.take("tls", givenTls),
      path: given.need("path", text),
      headers: headers.length > 0 ? headers : undefined,
      body: written(given.take("body", data, new Uint8Array())),
      "max-body": given.need("max-body", U32),
      redirects: given.take("redirects", U8, 0),
    });
    given.end();
    return { http: found };
  }
  if (kind === "connect") {
    const given = new Table(it, where);
    const found = present({ to: given.need("to", text), tls: given.take("tls", givenTls) });
    given.end();
    return { connect: found };
  }
  const read = { send: (it, where) => written(data(it, where)), receive: U32, shell: text, argv: texts }[kind];
  if (read === undefined) throw new CaseError(`${path}: unknown step \`${kind}\``);
  return { [kind]: read(it, where) };
}

function givenTls(value, path) {
  const given = new Table(value, path);
  const found = { "server-name": given.need("server-name", text), verify: given.need("verify", flag) };
  given.end();
  return found;
}

function givenAnswer(value, path) {
  const [kind, it] = oneOf(value, path);
  const where = `${path}.${kind}`;
  const nothing = new Uint8Array();
  if (kind === "http") {
    const given = new Table(it, where);
    const response = {
      status: given.need("status", U16),
      headers: given.take("headers", textPairs, []),
      body: given.take("body", data, nothing),
      elapsed: Number(given.take("elapsed-millis", u64, 1n)),
    };
    given.end();
    return { kind, it: response };
  }
  if (kind === "ran") {
    const given = new Table(it, where);
    const output = {
      exitCode: given.need("exit-code", I32),
      stdout: given.take("stdout", data, nothing),
      stderr: given.take("stderr", data, nothing),
    };
    given.end();
    return { kind, it: output };
  }
  if (kind === "connected") return { kind, it: Number(u64(it, where)) };
  const read = { sent: flag, received: data, error: givenError }[kind];
  if (read === undefined) throw new CaseError(`${path}: unknown answer \`${kind}\``);
  return { kind, it: read(it, where) };
}

/** `"refused"`, or `{ kind = "tls", message = "…" }`. */
function givenError(value, path) {
  const kind = text(isObject(value) ? value.kind : value, path);
  const message = isObject(value) ? text(value.message, `${path}.message`) : "from the self-test";
  if (!ERRORS.includes(kind)) {
    throw new CaseError(`${path}: unknown error \`${kind}\`, expected one of ${ERRORS.join(", ")}`);
  }
  return new IoError(kind, DETAILED.includes(kind) ? message : "");
}

function expected(value, path) {
  const [kind, it] = oneOf(value, path);
  const where = `${path}.${kind}`;
  if (kind === "failed") {
    if (!REASONS.includes(it)) {
      throw new CaseError(`${where}: found ${show(it)}, expected one of ${REASONS.join(", ")}`);
    }
  } else if (kind !== "custom") {
    const read = { http: U16, tcp: flag, command: I32 }[kind];
    if (read === undefined) throw new CaseError(`${path}: unknown result \`${kind}\``);
    read(it, where);
  }
  return { [kind]: it };
}

function outcomeOf(previous) {
  const [[kind, it]] = Object.entries(previous);
  return kind === "custom" ? it : new Outcome(kind, it);
}

function port(value, path) {
  const given = new Table(value, path);
  const found = {
    name: given.take("name", text),
    protocol: given.need("protocol", text),
    endpoint: given.need("endpoint", endpointOf),
  };
  given.end();
  return found;
}

function endpointOf(value, path) {
  const [, host, digits] = /^([^]*):\+?([0-9]+)$/.exec(text(value, path)) ?? [];
  if (host === undefined || Number(digits) > 65_535) {
    throw new CaseError(`\`endpoint\` is ${JSON.stringify(value)}; expected "host:port"`);
  }
  return { host: host.replace(/^[[\]]+|[[\]]+$/g, ""), port: Number(digits) };
}
