/** Values that stay current: asked again after a pause that grows with the cost of the answer. */

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { Failure } from "./api";

export interface Live<T> {
  value: T | undefined;
  /** Why the last request failed; the value is then the last one known. */
  error: Failure | undefined;
  /** Asks now. */
  refresh: () => void;
}

/** An answer that took long is asked for less often, so that many dashboards cost a bounded share of the daemon. */
const COST = 20;
const MAX_PAUSE = 30_000;

/**
 * Asks with `fetcher` whenever `key` changes and about every `every` milliseconds, not while the page is
 * hidden. An empty key asks nothing.
 */
export function useLive<T>(key: string, fetcher: (signal: AbortSignal) => Promise<T>, every: number): Live<T> {
  const [state, setState] = useState<{ key: string; value?: T; error?: Failure }>({ key });
  const latest = useRef(fetcher);
  latest.current = fetcher;
  const now = useRef<() => void>(() => undefined);

  useEffect(() => {
    if (!key) return;
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let asking = false;
    let wanted = false;
    const again = (pause: number) => {
      timer = setTimeout(() => (document.hidden ? again(1000) : void ask()), pause);
    };
    const ask = async () => {
      clearTimeout(timer);
      [asking, wanted] = [true, false];
      const began = performance.now();
      let pause = every;
      try {
        const value = await latest.current(control.signal);
        pause = Math.max(every, Math.min(MAX_PAUSE, (performance.now() - began) * COST));
        if (!control.signal.aborted) setState({ key, value });
      } catch (error) {
        if (control.signal.aborted) return;
        const failure = error instanceof Failure ? error : new Failure(-1, String(error));
        setState((old) => ({ key, value: old.key === key ? old.value : undefined, error: failure }));
      }
      asking = false;
      if (!control.signal.aborted) again(wanted ? 0 : pause);
    };
    // A request under way is not given up, or a slow daemon would never be seen to answer.
    now.current = () => {
      if (asking) wanted = true;
      else void ask();
    };
    void ask();
    return () => {
      control.abort();
      clearTimeout(timer);
      now.current = () => undefined;
    };
  }, [key, every]);

  const refresh = useCallback(() => now.current(), []);
  const known = state.key === key;
  return { value: known ? state.value : undefined, error: known ? state.error : undefined, refresh };
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
