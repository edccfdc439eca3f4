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

/** Timeout of the beginning of an answer, in milliseconds. */
const RESPONSE_TIMEOUT = 20_000;
/** The timeout if the request has a large body. */
const UPLOAD_TIMEOUT = 300_000;

/** The path of a service's API on this port. */
export function servicePath(name: string, path: string): string {
  return `/v1/services/${encodeURIComponent(name)}${path}`;
}

/** Encodes an app's id as a path, with a segment for each part. */
export function appPath(id: string): string {
  return id.split("/").map(encodeURIComponent).join("/");
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const isFile = body instanceof Blob;
  const timeout = isFile ? UPLOAD_TIMEOUT : RESPONSE_TIMEOUT;
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(), timeout);
  const abort = () => controller.abort();
  signal?.addEventListener("abort", abort);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      signal: controller.signal,
      credentials: "same-origin",
      headers: body === undefined || isFile ? {} : { "Content-Type": "application/json" },
      body: body === undefined || isFile ? body : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const text = controller.signal.aborted ? `no answer within ${timeout / 1000} s` : "the daemon cannot be reached";
    throw new Failure(0, text);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
  if (response.ok) return response;
  throw new Failure(response.status, await reason(response));
}

/** The message of an error response: from its JSON body, or else its text. */
async function reason(response: Response): Promise<string> {
  const text = await response.text().catch(() => "");
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
  return text.slice(0, 500) || `status ${response.status}`;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send("GET", path, undefined, signal);
  return (await response.json()) as T;
}

export async function getText(path: string, signal?: AbortSignal): Promise<{ text: string; next: number | undefined }> {
  const response = await send("GET", path, undefined, signal);
  const next = response.headers.get("Transom-Next-Offset");
  return { text: await response.text(), next: next === null ? undefined : Number(next) };
}

/** Sends a request that changes something. Returns the answer, parsed if it is JSON. */
export async function change(method: string, path: string, body?: unknown): Promise<unknown> {
  const response = await send(method, path, body);
  const answer = await response.text();
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
  /** Whether the daemon ignores the files, because a rollback or a return has replaced the same ones. */
  ignored: boolean;
}

/** Sends files of a plugin. */
export async function upload(path: string, files: Blob): Promise<Uploaded> {
  const response = await send("PUT", path, files);
  return (await response.json()) as Uploaded;
}
