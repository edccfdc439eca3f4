/** Polled values: the pause between two requests grows with the time that the answer took. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure } from "./api";

export interface Live<T> {
  value: T | undefined;
  /** The error of the last request; `value` is then the last known value. */
  error: Failure | undefined;
  /** Sends a request now. */
  refresh: () => void;
  /** Sends a request after an event: not while the page is hidden, and later if the last answer took long. */
  refreshSoon: () => void;
}

/** Ratio of pause to answer time, which bounds the share of the daemon's time that many dashboards use. */
const PAUSE_RATIO = 20;
const MAX_PAUSE = 30_000;
/** Interval in which a hidden page tests whether it is visible again. */
const HIDDEN_INTERVAL = 1000;

/** Requests that are repeated. */
export interface Polling {
  refresh: () => void;
  refreshSoon: () => void;
  stop: () => void;
}

/** Calls `request` now and about every `interval` milliseconds. `request` handles its own errors. */
export function poll(request: (signal: AbortSignal) => Promise<void>, interval: number, isHidden: () => boolean): Polling {
  const control = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let requesting = false;
  let requested: "now" | "soon" | undefined;
  /** The time before which no event causes a request. */
  let earliest = 0;
  const schedule = (pause: number) => {
    clearTimeout(timer);
    timer = setTimeout(() => (isHidden() ? schedule(HIDDEN_INTERVAL) : void send()), pause);
  };
  const untilEarliest = () => Math.max(0, earliest - performance.now());
  const send = async () => {
    clearTimeout(timer);
    [requesting, requested] = [true, undefined];
    const startedAt = performance.now();
    await request(control.signal);
    earliest = performance.now() + Math.min(MAX_PAUSE, (performance.now() - startedAt) * PAUSE_RATIO);
    requesting = false;
    if (control.signal.aborted) return;
    if (requested === "now") void send();
    else schedule(requested ? untilEarliest() : Math.max(interval, untilEarliest()));
  };
  void send();
  return {
    // A running request is not cancelled; otherwise no answer of a slow daemon would ever arrive.
    refresh: () => {
      if (requesting) requested = "now";
      else void send();
    },
    refreshSoon: () => {
      if (requesting) requested ??= "soon";
      else schedule(untilEarliest());
    },
    stop: () => {
      control.abort();
      clearTimeout(timer);
    },
  };
}

/**
 * Calls `fetcher` whenever `key` changes and about every `interval` milliseconds, but not while the page is
 * hidden. With an empty key it sends no requests.
 */
export function useLive<T>(key: string, fetcher: (signal: AbortSignal) => Promise<T>, interval: number): Live<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: Failure }>({ key });
  const latestFetcher = useRef(fetcher);
  latestFetcher.current = fetcher;
  const polling = useRef<Polling | undefined>(undefined);

  useEffect(() => {
    if (!key) return;
    const request = async (signal: AbortSignal) => {
      try {
        const value = await latestFetcher.current(signal);
        if (!signal.aborted) setState({ key, value });
      } catch (error) {
        if (signal.aborted) return;
        const failure = error instanceof Failure ? error : new Failure(-1, String(error));
        setState((old) => ({ key, value: old.key === key ? old.value : undefined, error: failure }));
      }
    };
    const current = poll(request, interval, () => document.hidden);
    polling.current = current;
    return () => {
      current.stop();
      polling.current = undefined;
    };
  }, [key, interval]);

  const refresh = useCallback(() => polling.current?.refresh(), []);
  const refreshSoon = useCallback(() => polling.current?.refreshSoon(), []);
  const isCurrent = state.key === key;
  return {
    value: isCurrent ? state.value : undefined,
    error: isCurrent ? state.error : undefined,
    refresh,
    refreshSoon,
  };
}

/** Calls the newest `refresh` at most once in `pause` milliseconds, however often the returned function is called. */
export function useThrottled(refresh: () => void, pause: number): () => void {
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const latest = useRef({ refresh, pause });
  latest.current = { refresh, pause };
  useEffect(() => () => clearTimeout(timer.current), []);
  return useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      latest.current.refresh();
    }, latest.current.pause);
  }, []);
}
