/** Polled values: the pause between two requests grows with the time that the answer took. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure } from "./api";

export interface Live<T> {
  value: T | undefined;
  /** The error of the last request; `value` is then the last known value. */
  error: Failure | undefined;
  /** Sends a request now. */
  refresh: () => void;
}

/** Ratio of pause to answer time, which bounds the share of the daemon's time that many dashboards use. */
const PAUSE_RATIO = 20;
const MAX_PAUSE = 30_000;

/**
 * Calls `fetcher` whenever `key` changes and about every `every` milliseconds, but not while the page is
 * hidden. With an empty key it sends no requests.
 */
export function useLive<T>(key: string, fetcher: (signal: AbortSignal) => Promise<T>, interval: number): Live<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: Failure }>({ key });
  const latestFetcher = useRef(fetcher);
  latestFetcher.current = fetcher;
  const requestNow = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (!key) return;
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let requesting = false;
    let refreshRequested = false;
    const schedule = (pause: number) => {
      timer = setTimeout(() => (document.hidden ? schedule(1000) : void request()), pause);
    };
    const request = async () => {
      clearTimeout(timer);
      [requesting, refreshRequested] = [true, false];
      const startedAt = performance.now();
      let pause = interval;
      try {
        const value = await latestFetcher.current(control.signal);
        pause = Math.max(interval, Math.min(MAX_PAUSE, (performance.now() - startedAt) * PAUSE_RATIO));
        if (!control.signal.aborted) setState({ key, value });
      } catch (error) {
        if (control.signal.aborted) return;
        const failure = error instanceof Failure ? error : new Failure(-1, String(error));
        setState((old) => ({ key, value: old.key === key ? old.value : undefined, error: failure }));
      }
      requesting = false;
      if (!control.signal.aborted) schedule(refreshRequested ? 0 : pause);
    };
    // A running request is not cancelled; otherwise no answer of a slow daemon would ever arrive.
    requestNow.current = () => {
      if (requesting) refreshRequested = true;
      else void request();
    };
    void request();
    return () => {
      control.abort();
      clearTimeout(timer);
      requestNow.current = () => undefined;
    };
  }, [key, interval]);

  const refresh = useCallback(() => requestNow.current(), []);
  const isCurrent = state.key === key;
  return { value: isCurrent ? state.value : undefined, error: isCurrent ? state.error : undefined, refresh };
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
