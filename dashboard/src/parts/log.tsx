/** The output of a task: opens at its end, follows it, and can be searched and saved. */

import { useContext, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { spans } from "../lib/ansi";
import { Failure, getPiece } from "../lib/api";
import { displayText } from "../lib/format";
import { OutputDecoder, split } from "../lib/output";
import { Session } from "./actions";

/** Maximum number of characters that are kept. */
const MAX_CHARACTERS = 200_000;
/** Milliseconds between two requests. */
const POLL_INTERVAL = 1500;
/** Distance from the end, in pixels, within which the page follows the output. */
const END_MARGIN = 60;
/** Bytes of one piece of a saved output, and of all of it. */
const PIECE = 1 << 20;
const MAX_SAVED = 256 << 20;

type Source = (stream: string, offset?: number, length?: number) => string;

export function Log({ title, source }: { title: string; source: Source }) {
  const { notify } = useContext(Session);
  const [stream, setStream] = useState("stdout");
  const [content, setContent] = useState("");
  const [error, setError] = useState("");
  const [search, setSearch] = useState("");
  const [current, setCurrent] = useState(0);
  const [wrap, setWrap] = useState(() => localStorage.getItem("wrap") !== "no");
  const [following, setFollowing] = useState(true);
  const [saving, setSaving] = useState(false);
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
    setFollowing(true);
    const read = async () => {
      let pause = POLL_INTERVAL;
      try {
        const { bytes, next } = await getPiece(path.current(stream, offset), control.signal);
        offset = next ?? offset;
        if (bytes.length > 0) {
          const text = decoder.decode(bytes).replace(/\r\n/g, "\n");
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

  useEffect(() => {
    if (following && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [content, following, wrap]);

  const { parts, matches } = useMemo(() => pieces(content, search), [content, search]);
  const find = (step: number) => {
    if (matches === 0) return;
    const next = (current + step + matches) % matches;
    setCurrent(next);
    setFollowing(false);
    box.current?.querySelectorAll("mark").item(next)?.scrollIntoView({ block: "center" });
  };
  const save = async () => {
    setSaving(true);
    try {
      saveFile(`${title}.${stream}.txt`, await readAll((offset) => path.current(stream, offset, PIECE)));
    } catch (failure) {
      notify(`The output was not saved: ${displayText(failure instanceof Error ? failure.message : failure, 300)}`, true);
    }
    setSaving(false);
  };
  const toggleWrap = () => {
    localStorage.setItem("wrap", wrap ? "no" : "yes");
    setWrap(!wrap);
  };
  let mark = -1;
  return (
    <div class="log">
      <div class="tabs" role="group" aria-label="Output">
        {["stdout", "stderr"].map((name) => (
          <button type="button" key={name} aria-pressed={stream === name} onClick={() => setStream(name)}>
            {name}
          </button>
        ))}
        <button type="button" aria-pressed={following} onClick={() => setFollowing(!following)}>
          Follow
        </button>
        <button type="button" aria-pressed={wrap} onClick={toggleWrap}>
          Wrap
        </button>
        <button type="button" disabled={saving} onClick={() => void save()}>
          {saving ? "Saving…" : "Download"}
        </button>
        <input
          type="search"
          placeholder="Search"
          aria-label="Search in the output"
          value={search}
          onInput={(event) => {
            setSearch(event.currentTarget.value);
            setCurrent(-1);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") find(event.shiftKey ? -1 : 1);
          }}
        />
        {search && (
          <>
            <small role="status">{matches === 0 ? "not found" : `${Math.max(0, current) + 1} of ${matches}`}</small>
            <button type="button" aria-label="Previous match" onClick={() => find(-1)}>
              ↑
            </button>
            <button type="button" aria-label="Next match" onClick={() => find(1)}>
              ↓
            </button>
          </>
        )}
      </div>
      {error && <p class="failed">{displayText(error, 500)}</p>}
      <pre
        ref={box}
        tabIndex={0}
        class={wrap ? "" : "nowrap"}
        aria-label={displayText(title, 300)}
        onScroll={({ currentTarget: view }) => setFollowing(view.scrollHeight - view.scrollTop - view.clientHeight < END_MARGIN)}
      >
        {parts.map(({ text, style, match }, at) => {
          if (!match) return style ? <span key={at} class={style}>{text}</span> : text;
          mark += 1;
          return <mark key={at} class={mark === current ? "current" : ""}>{text}</mark>;
        })}
        {!content && !error && "No output yet."}
      </pre>
    </div>
  );
}

interface Piece {
  text: string;
  style: string;
  match: boolean;
}

/** The parts of a text by their style, and the parts that a search finds. */
function pieces(content: string, search: string): { parts: Piece[]; matches: number } {
  const parts = spans(content).flatMap(({ text, style }) =>
    split(displayText(text, MAX_CHARACTERS), search).map((part) => ({ ...part, style })));
  return { parts, matches: parts.filter(({ match }) => match).length };
}

/** Reads an output from its beginning to its present end. */
async function readAll(path: (offset: number) => string): Promise<Blob> {
  const read: BlobPart[] = [];
  let offset = 0;
  while (offset < MAX_SAVED) {
    const { bytes, next } = await getPiece(path(offset));
    if (bytes.length === 0) break;
    read.push(bytes as Uint8Array<ArrayBuffer>);
    offset = next ?? offset + bytes.length;
  }
  return new Blob(read, { type: "text/plain" });
}

function saveFile(name: string, content: Blob): void {
  const address = URL.createObjectURL(content);
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name.replace(/[^\w.-]+/g, "_");
  anchor.click();
  // The browser has begun the download when the next task runs.
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}
