// `check-probe`: checks a running task.
import { described, InvalidConfig, Plugin } from "./plugin.js";

export { InvalidConfig };

const REASONS = { denied: "denied", "timed-out": "timed-out", tls: "invalid", protocol: "invalid" };

/** Ends an attempt without a result. */
export class Failed extends Error {
  constructor(reason, message) {
    super(message);
    this.reason = reason;
  }
}

/** A step failed. */
export class IoError extends Error {
  constructor(kind, detail = "") {
    super(detail ? `${kind}: ${detail}` : kind);
    this.kind = kind;
    this.detail = detail;
  }

  /** The failure of an attempt that this error ends without a result. */
  failed() {
    return new Failed(REASONS[this.kind] ?? "unreachable", this.message);
  }
}

/** A step in the form of the interface. */
export class Step {
  constructor(tag, val) {
    this.tag = tag;
    this.val = val;
  }
}

/** An outcome in the form of the interface. */
export class Outcome {
  constructor(tag, val) {
    this.tag = tag;
    this.val = val;
  }
}

function named(endpoint) {
  if (endpoint === undefined) throw new Failed("invalid", "the check names no port");
  return endpoint;
}

const bytes = (data) => (typeof data === "string" ? new TextEncoder().encode(data) : data);

export const text = (data) => new TextDecoder().decode(data);

export function http({
  endpoint,
  path = "/",
  method = "GET",
  headers = [],
  body = "",
  tls,
  maxBody = 65_536,
  redirects = 0,
}) {
  return new Step("http", {
    method,
    endpoint: named(endpoint),
    tls,
    path,
    headers,
    body: bytes(body),
    maxBody,
    redirects,
  });
}

export const connect = (endpoint, tls) => new Step("connect", [named(endpoint), tls]);
export const send = (data) => new Step("send", bytes(data));
export const receive = (most) => new Step("receive", most);
export const shell = (line) => new Step("run", { tag: "shell", val: line });
export const run = (argv) => new Step("run", { tag: "argv", val: argv });

export const httpStatus = (status) => new Outcome("http", status);
export const tcp = (succeeded) => new Outcome("tcp", succeeded);
export const exitCode = (code) => new Outcome("command", code);

export class Probe extends Plugin {
  static world = "check-probe";

  attempt(_request) {
    throw new Error(`${this.constructor.name} has no method \`attempt\``);
  }
}

/** A running attempt, driven as by the host. */
export class Running {
  constructor(probe, request) {
    this.begin = () => probe.attempt(request);
  }

  /** Returns the first step. */
  first() {
    return this.advance(() => {
      this.attempt = this.begin();
      return this.attempt.next();
    });
  }

  /** Returns the step after the answer to the last one. */
  next(answer) {
    return this.advance(() => (answer instanceof IoError ? this.attempt.throw(answer) : this.attempt.next(answer)));
  }

  advance(move) {
    try {
      const { done, value } = move();
      if (!done) return value;
      return value instanceof Outcome ? value : new Outcome("custom", JSON.stringify(value));
    } catch (error) {
      if (error instanceof IoError) return error.failed();
      if (error instanceof Failed) return error;
      throw error;
    }
  }
}

/** The interfaces that a component of this class exports. */
export function component(plugin) {
  const { about, plugin: configured } = described(plugin);

  class Attempt {
    constructor(request) {
      this.running = new Running(configured(), plainRequest(request));
    }

    next(last) {
      const step = last === undefined ? this.running.first() : this.running.next(plainAnswer(last));
      if (step instanceof Failed) return { tag: "failed", val: { reason: step.reason, message: step.message } };
      return step instanceof Outcome ? { tag: "done", val: { tag: step.tag, val: step.val } } : step;
    }
  }

  return { about, probe: { Attempt } };
}

function plainRequest(request) {
  const { previous } = request;
  if (previous === undefined) return request;
  const found = previous.tag === "custom" ? JSON.parse(previous.val) : new Outcome(previous.tag, previous.val);
  return { ...request, previous: found };
}

/** Returns the value of an answer, or its error. */
function plainAnswer({ val: result }) {
  return result.tag === "ok" ? result.val : new IoError(result.val.tag, result.val.val);
}
