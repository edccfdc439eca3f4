/** The output of a task, live. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, getPiece } from "../lib/api";
import { displayText } from "../lib/format";
import { OutputDecoder } from "../lib/output";

/** Maximum number of characters that are kept. */
const MAX_CHARACTERS = 200_000;
/** Milliseconds between two requests. */
const POLL_INTERVAL = 1500;

export function Log({ title, source }: { title: string; source: (stream: string, offset?: number) => string }) {
  const [stream, setStream] = useState("stdout");
  const [content, setContent] = useState("");
  const [error, setError] = useState("");
  const box = useRef<HTMLPreElement>(null);
  const path = useRef(source);
  path.current = source;

  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let offset: number | undefined;
    const decoder = new OutputDecoder();
    setContent("");
    setError("");
    const read = async () => {
      let pause = POLL_INTERVAL;
      try {
        const { bytes, next } = await getPiece(path.current(stream, offset), control.signal);
        offset = next ?? offset;
        if (bytes.length > 0) {
          const text = decoder.decode(bytes);
          setContent((old) => (old + text).slice(-MAX_CHARACTERS));
          pause = 300;
        }
        setError("");
      } catch (failure) {
        if (control.signal.aborted) return;
        setError(failure instanceof Failure ? failure.message : String(failure));
        pause = 3000;
      }
      if (!control.signal.aborted) timer = setTimeout(() => void read(), document.hidden ? 5000 : pause);
    };
    void read();
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, [stream, title]);

  // The end stays in view unless the user has scrolled up.
  useEffect(() => {
    const view = box.current;
    if (view && view.scrollHeight - view.scrollTop - view.clientHeight < 120) view.scrollTop = view.scrollHeight;
  }, [content]);

  return (
    <div class="log">
      <div class="tabs" role="group" aria-label="Stream">
        {["stdout", "stderr"].map((name) => (
          <button type="button" key={name} aria-pressed={stream === name} onClick={() => setStream(name)}>
            {name}
          </button>
        ))}
      </div>
      {error && <p class="failed">{displayText(error, 500)}</p>}
      <pre ref={box} tabIndex={0} aria-label={title}>
        {content ? displayText(content, MAX_CHARACTERS) : error ? "" : "No output yet."}
      </pre>
    </div>
  );
}
