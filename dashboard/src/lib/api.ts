/** Requests to the daemon that served the page; there are no other requests. */

/** The error of a failed request, with a message for people. */
export class Failure extends Error {
  constructor(
    /** The HTTP status; 0: the daemon did not answer; -1: another error. */
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Timeout of the beginning of an answer, and of each further piece of it, in milliseconds. */
const RESPONSE_TIMEOUT = 20_000;
/** Timeout of the beginning of the answer if the request has a large body. */
const UPLOAD_TIMEOUT = 300_000;

/** The path of a service's API on this port. */
export function servicePath(name: string, path: string): string {
  return `/v1/services/${encodeURIComponent(name)}${path}`;
}

/** Encodes an app's id as a path, with a segment for each part. */
export function appPath(id: string): string {
  return id.split("/").map(encodeURIComponent).join("/");
}

interface Answer {
  headers: Headers;
  body: Uint8Array;
}

/** Sends a request and reads the whole answer, which may take any time as long as pieces of it arrive. */
async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Answer> {
  const isFile = body instanceof Blob;
  const controller = new AbortController();
  const abort = () => controller.abort();
  let timeout = isFile ? UPLOAD_TIMEOUT : RESPONSE_TIMEOUT;
  let timer = setTimeout(abort, timeout);
  const restartTimer = () => {
    clearTimeout(timer);
    timeout = RESPONSE_TIMEOUT;
    timer = setTimeout(abort, timeout);
  };
  signal?.addEventListener("abort", abort);
  let response: Response | undefined;
  try {
    response = await fetch(path, {
      method,
      signal: controller.signal,
      credentials: "same-origin",
      headers: body === undefined || isFile ? {} : { "Content-Type": "application/json" },
      body: body === undefined || isFile ? body : JSON.stringify(body),
    });
    const content = await readBody(response, restartTimer);
    if (response.ok) return { headers: response.headers, body: content };
    throw new Failure(response.status, reason(response.status, decode(content)));
  } catch (error) {
    if (signal?.aborted || error instanceof Failure) throw error;
    throw interruption(response, controller.signal.aborted ? timeout : undefined);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

/** The error of an answer that did not arrive completely; `timeout` is the one that has passed. */
function interruption(response: Response | undefined, timeout: number | undefined): Failure {
  // The status of a rejection is known even if its message is not.
  if (response && !response.ok) return new Failure(response.status, `status ${response.status}`);
  if (timeout === undefined) return new Failure(0, response ? "the connection was lost" : "the daemon cannot be reached");
  const seconds = timeout / 1000;
  return new Failure(0, response ? `the answer stopped: no data for ${seconds} s` : `no answer within ${seconds} s`);
}

/** Reads the body of a response; calls `progress` before it waits for a piece. */
async function readBody(response: Response, progress: () => void): Promise<Uint8Array> {
  const pieces: Uint8Array[] = [];
  const reader = response.body?.getReader();
  while (reader) {
    progress();
    const { done, value } = await reader.read();
    if (done) break;
    pieces.push(value);
  }
  const body = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    body.set(piece, at);
    at += piece.length;
  }
  return body;
}

function decode(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes);
}

/** The message of an error response: from its JSON body, or else its text. */
function reason(status: number, text: string): string {
  try {
    const body: unknown = JSON.parse(text);
    if (body && typeof body === "object") {
      const { message, details, error } = body as Record<string, unknown>;
      const errorMessage = message ?? error;
      if (typeof errorMessage === "string") {
        return details === undefined ? errorMessage : `${errorMessage} ${JSON.stringify(details)}`;
      }
    }
  } catch {
    // The body is not JSON, so its text is the message.
  }
  return text.slice(0, 500) || `status ${status}`;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const { body } = await send("GET", path, undefined, signal);
  return JSON.parse(decode(body)) as T;
}

export async function getText(path: string, signal?: AbortSignal): Promise<string> {
  return decode((await send("GET", path, undefined, signal)).body);
}

/** Gets a piece of an output, and the offset of the next piece. */
export async function getPiece(path: string, signal?: AbortSignal): Promise<{ bytes: Uint8Array; next: number | undefined }> {
  const { headers, body } = await send("GET", path, undefined, signal);
  const next = headers.get("Transom-Next-Offset");
  return { bytes: body, next: next === null ? undefined : Number(next) };
}

/** Sends a request that changes something. Returns the answer, parsed if it is JSON. */
export async function change(method: string, path: string, body?: unknown): Promise<unknown> {
  const answer = decode((await send(method, path, body)).body);
  try {
    return JSON.parse(answer) as unknown;
  } catch {
    return answer;
  }
}

/** The daemon's answer after it has written the files of a plugin. */
export interface Uploaded {
  /** Digest of the component; null if it comes from a registry. */
  digest: string | null;
  /** Whether the daemon ignores the files, because a rollback or an abort has replaced the same ones. */
  ignored: boolean;
}

/** Sends files of a plugin. */
export async function upload(path: string, files: Blob): Promise<Uploaded> {
  const { body } = await send("PUT", path, files);
  return JSON.parse(decode(body)) as Uploaded;
}
