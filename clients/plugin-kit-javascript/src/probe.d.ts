import { AboutInterface, Json, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig } from "./plugin.js";

export type Reason = "timed-out" | "denied" | "unreachable" | "invalid" | "internal";

export type ErrorKind =
  | "denied"
  | "unresolved"
  | "refused"
  | "unreachable"
  | "timed-out"
  | "closed"
  | "tls"
  | "protocol"
  | "unavailable";

/** Ends an attempt without a result. `message`: one line, for the author of the check. */
export class Failed extends Error {
  constructor(reason: Reason, message: string);
  readonly reason: Reason;
}

/** A step failed. Thrown in the attempt, which may handle it; otherwise it ends the attempt. */
export class IoError extends Error {
  constructor(kind: ErrorKind, detail?: string);
  readonly kind: ErrorKind;
  readonly detail: string;
  /** The failure of an attempt that this error ends without a result. */
  failed(): Failed;
}

/** A name or an address (IPv6 without brackets), and a port. */
export interface Endpoint {
  host: string;
  port: number;
}

/** A port of the task, and how the probing host reaches it. */
export interface Port {
  name?: string;
  /** `tcp`, `udp` or `udp,tcp`. */
  protocol: string;
  endpoint: Endpoint;
}

/** TLS on a connection. */
export interface Tls {
  /** Empty: the endpoint's host. */
  serverName: string;
  /** False needs a grant. */
  verify: boolean;
}

/** One probe of one task. */
export interface Request {
  runSpec: string;
  task: string;
  agent: string;
  labels: Pairs;
  ports: Port[];
  /** The port that the check names; undefined: it names none. */
  endpoint?: Endpoint;
  path: string;
  /** The check's `exec.command.shell`. */
  command?: string;
  /** The check's `plugin.settings`, as JSON. */
  settings: string;
  /** The result of the last finished attempt on this task. */
  previous?: Outcome | Json;
  /** Milliseconds for the whole attempt. */
  timeout: number;
  extensions: Pairs;
}

/** The response to a request. Names of headers are in lower case. */
export interface HttpResponse {
  status: number;
  headers: Pairs;
  body: Uint8Array;
  /** Milliseconds from the first byte sent to the last header read. */
  elapsed: number;
}

/** The result of a command, with the last 4,096 bytes of each output stream. */
export interface CommandOutput {
  exitCode: number;
  stdout: Uint8Array;
  stderr: Uint8Array;
}

/** The next step for the host; created by the functions below. */
export class Step {
  private constructor();
  readonly tag: string;
}

/**
 * Sends a request on a new connection; results in an `HttpResponse`. By default `GET /`, with 64 KiB of the
 * body.
 */
export function http(request: {
  endpoint: Endpoint | undefined;
  path?: string;
  method?: string;
  headers?: Pairs;
  body?: Uint8Array | string;
  tls?: Tls;
  /** Maximum bytes to read of the response's body. */
  maxBody?: number;
  redirects?: number;
}): Step;
/** Opens the attempt's connection; results in the milliseconds that it took. */
export function connect(endpoint: Endpoint | undefined, tls?: Tls): Step;
/** Sends all of these bytes; results in undefined. */
export function send(data: Uint8Array | string): Step;
/** Receives at least one and at most this number of bytes; results in a `Uint8Array`. */
export function receive(most: number): Step;
/** Runs a line with `/bin/sh -c` on the task's agent; results in a `CommandOutput`. */
export function shell(line: string): Step;
/** Runs a program with arguments on the task's agent; results in a `CommandOutput`. */
export function run(argv: string[]): Step;

/**
 * The result of an attempt; created by the functions below. An object is a custom result, defined by the
 * plugin.
 */
export class Outcome {
  private constructor();
  readonly tag: "http" | "tcp" | "command" | "custom";
  readonly val: number | boolean | string;
}

/** An HTTP status code, 100 to 599. */
export function httpStatus(status: number): Outcome;
/** Whether the connection succeeded. */
export function tcp(succeeded: boolean): Outcome;
/** A command's exit code. */
export function exitCode(code: number): Outcome;

/** Bytes as UTF-8. */
export function text(data: Uint8Array): string;

/** A plugin of the world `check-probe`. It does no input or output itself. */
export abstract class Probe extends Plugin {
  static readonly world: "check-probe";
  /**
   * One attempt on one task: a generator that yields steps. The host performs each step within the plugin's
   * grants, and its result is the value of the `yield`; a step that fails throws `IoError` there. The
   * generator returns the result: an outcome, or an object of at most 4,096 bytes of JSON. A `Failed`, or an
   * `IoError` that is not caught, ends the attempt without a result.
   */
  abstract attempt(request: Request): Generator<Step, Outcome | Json, any>;
}

/** A running attempt, for unit tests that drive it like the host. */
export class Running {
  constructor(probe: Probe, request: Request);
  /** Returns the first step. */
  first(): Step | Outcome | Failed;
  /** Returns the step after the answer to the last one; an outcome or a failure is the end. */
  next(answer: unknown): Step | Outcome | Failed;
}

/** The exports of a component of this class: `export const { about, probe } = component(MyProbe);`. */
export function component(plugin: PluginClass<Probe>): { about: AboutInterface; probe: object };
