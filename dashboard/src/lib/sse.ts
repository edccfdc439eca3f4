/**
 * Server-sent events. Unlike `EventSource`, this client receives every type of event, and the status of a
 * rejection.
 * A stream is closed while the page is hidden, because browsers allow six connections to one address.
 */

export interface ServerEvent {
  type: string;
  data: string;
}

/** Splits a stream into events; `push` parses the next piece of text. */
export class Parser {
  private rest = "";
  private type = "";
  private data: string[] = [];

  push(piece: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    const lines = (this.rest + piece).split(/\r\n|\n/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) events.push({ type: this.type || "message", data: this.data.join("\n") });
        this.type = "";
        this.data = [];
      } else if (line.startsWith("event:")) {
        this.type = line.slice(6).trim();
      } else if (line.startsWith("data:")) {
        this.data.push(line.slice(line.startsWith("data: ") ? 6 : 5));
      }
    }
    return events;
  }
}

export interface Subscriber {
  event(event: ServerEvent): void;
  /** Called with an error when the stream ends or cannot be opened, and with nothing when it is open. */
  state(error?: string, status?: number): void;
}

/** The longest pause between two attempts. */
const MAX_PAUSE = 10_000;
/**
 * The longest time without data, in milliseconds. The daemon sends something at least every 15 seconds, so a silent
 * stream has lost its connection without an error, as after a loss of power.
 */
const SILENCE_TIMEOUT = 45_000;

/** Follows a stream until the returned function is called. */
export function follow(path: string, subscriber: Subscriber): () => void {
  let stopped = false;
  let pause = 500;
  let current: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  const open = async () => {
    const control = new AbortController();
    current = control;
    let silent = false;
    let watchdog: ReturnType<typeof setTimeout> | undefined;
    const restartWatchdog = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => {
        silent = true;
        control.abort();
      }, SILENCE_TIMEOUT);
    };
    restartWatchdog();
    try {
      const response = await fetch(path, {
        headers: { Accept: "text/event-stream" },
        credentials: "same-origin",
        signal: control.signal,
      });
      if (!response.ok || !response.body) {
        subscriber.state(`status ${response.status}`, response.status);
      } else {
        subscriber.state();
        pause = 500;
        const parser = new Parser();
        const decoder = new TextDecoder();
        const reader = response.body.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          restartWatchdog();
          parser.push(decoder.decode(value, { stream: true })).forEach((event) => subscriber.event(event));
        }
        subscriber.state("the stream has ended", response.status);
      }
    } catch {
      if (silent) subscriber.state(`no data for ${SILENCE_TIMEOUT / 1000} s`, 0);
      else if (!control.signal.aborted) subscriber.state("the daemon cannot be reached", 0);
    } finally {
      clearTimeout(watchdog);
    }
    current = undefined;
    if (!stopped && !document.hidden) {
      timer = setTimeout(() => void open(), pause);
      pause = Math.min(pause * 2, MAX_PAUSE);
    }
  };
  const visibility = () => {
    clearTimeout(timer);
    if (document.hidden) current?.abort();
    else if (!current) void open();
  };
  document.addEventListener("visibilitychange", visibility);
  if (!document.hidden) void open();
  return () => {
    stopped = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", visibility);
    current?.abort();
  };
}
