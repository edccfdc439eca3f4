/**
 * Server-sent events. Unlike `EventSource`, this client receives every type of event, and the status of a
 * rejection.
 * A stream is closed while the page is hidden, because browsers allow six connections to one address.
 */

import { createParser } from "eventsource-parser";

export interface ServerEvent {
  type: string;
  data: string;
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
/** The type of the first event of a stream that misses events. */
const GAP = "event_stream_gap";
/** An id of no term: the gap that answers it names the newest event. */
const NO_EVENT = "0-0";

/** The id of the event that is `past` events before the last one that a gap names. */
export function earlierId(gap: string, past: number): string | undefined {
  try {
    const { to } = JSON.parse(gap) as { to?: unknown };
    const match = /^(\d+)-(\d+)$/.exec(typeof to === "string" ? to : "");
    return match ? `${match[1]}-${Math.max(0, Number(match[2]) - past)}` : undefined;
  } catch {
    return undefined;
  }
}

/**
 * Follows a stream until the returned function is called. With `past`, for streams whose events have ids, it begins
 * with that number of past events, and continues after the last received event when it is opened again.
 */
export function follow(path: string, subscriber: Subscriber, past = 0): () => void {
  let stopped = false;
  let pause = 500;
  let current: AbortController | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let lastId = past > 0 ? NO_EVENT : "";

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
    const parser = createParser({
      onEvent: ({ event = "message", data, id }) => {
        if (control.signal.aborted) return;
        const start = event === GAP && lastId === NO_EVENT ? earlierId(data, past) : undefined;
        if (start !== undefined) {
          lastId = start;
          control.abort();
          void open();
          return;
        }
        if (past > 0 && id) lastId = id;
        subscriber.event({ type: event, data });
      },
    });
    try {
      const response = await fetch(path, {
        headers: { Accept: "text/event-stream", ...(lastId ? { "Last-Event-ID": lastId } : {}) },
        credentials: "same-origin",
        signal: control.signal,
      });
      if (!response.ok || !response.body) {
        subscriber.state(`status ${response.status}`, response.status);
      } else {
        subscriber.state();
        pause = 500;
        const decoder = new TextDecoder();
        const reader = response.body.getReader();
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          restartWatchdog();
          parser.feed(decoder.decode(value, { stream: true }));
        }
        subscriber.state("the stream has ended", response.status);
      }
    } catch {
      if (silent) subscriber.state(`no data for ${SILENCE_TIMEOUT / 1000} s`, 0);
      else if (!control.signal.aborted) subscriber.state("the daemon cannot be reached", 0);
    } finally {
      clearTimeout(watchdog);
    }
    // The stream may have been opened again already.
    if (current !== control) return;
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
