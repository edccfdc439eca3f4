/** The events of the apps service as sentences: those of the daemon's buffer, and then as they happen. */

import { useEffect, useRef, useState } from "preact/hooks";
import { servicePath } from "../lib/api";
import { displayText, localTime } from "../lib/format";
import { useQuery } from "../lib/route";
import { sentence } from "../lib/sentences";
import { follow } from "../lib/sse";
import { Badge, Panel, type Tone } from "../parts/basics";
import { type Column, Table } from "../parts/table";

interface EventRow {
  id: number;
  at: string;
  type: string;
  data: string;
}

/** Maximum number of events that are kept. */
const MAX_EVENTS = 2000;
/** Milliseconds between two updates of the page. */
const UPDATE_INTERVAL = 250;

const KINDS: [string, RegExp][] = [
  ["all", /./],
  ["deployments", /deployment|group_change/],
  ["tasks", /status_update|instance_changed|unknown_instance/],
  ["health", /health/],
  ["pods", /pod_/],
  ["API", /api_post|subscribe|stream/],
  ["plugins", /plugin/],
];

function tone({ type, data }: EventRow): Tone {
  if (/failed|refused|unhealthy|terminated/.test(type) || /"taskStatus":"TASK_(FAILED|ERROR|LOST|DROPPED|GONE)/.test(data)) return "bad";
  if (/success|admitted/.test(type)) return "good";
  return "info";
}

export function Events() {
  const [events, setEvents] = useState<EventRow[]>([]);
  const [state, setState] = useState("connecting");
  const [kind, setKind] = useQuery("kind");
  const [filter, setFilter] = useQuery("q");
  const [paused, setPaused] = useState(false);
  const [selected, setSelected] = useState<EventRow>();
  const buffer = useRef<EventRow[]>([]);
  const stopped = useRef(false);
  stopped.current = paused;

  useEffect(() => {
    let next = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = follow(servicePath("apps", "/v2/events?ids=true&plan-format=light"), {
      event: ({ type, data }) => {
        next += 1;
        buffer.current.push({ id: next, at: /"timestamp":"([^"]+)"/.exec(data)?.[1] ?? new Date().toISOString(), type, data });
        if (buffer.current.length > 2 * MAX_EVENTS) buffer.current = buffer.current.slice(-MAX_EVENTS);
        timer ??= setTimeout(() => {
          timer = undefined;
          if (!stopped.current) setEvents(buffer.current.slice(-MAX_EVENTS).reverse());
        }, UPDATE_INTERVAL);
      },
      state: (error) => setState(error ?? "live"),
    }, MAX_EVENTS);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, []);

  const pattern = KINDS.find(([name]) => name === kind)?.[1] ?? /./;
  const filterText = filter.toLowerCase();
  const list = events.filter(({ type, data }) => pattern.test(type) && `${type} ${data}`.toLowerCase().includes(filterText));
  const columns: Column<EventRow>[] = [
    {
      title: "What happened",
      width: "1fr",
      cell: (event) => {
        const { text, href } = sentence(event.type, event.data);
        return href ? <a href={href} title={text}>{text}</a> : <span title={text}>{text}</span>;
      },
    },
    {
      title: "Event",
      width: "15rem",
      wide: true,
      cell: (event) => (
        <button type="button" class="plain" title="Show the event" onClick={() => setSelected(event)}>
          <Badge tone={tone(event)}>{displayText(event.type, 60)}</Badge>
        </button>
      ),
    },
    { title: "Time", width: "5.5rem", cell: ({ at }) => <span title={displayText(at, 40)}>{localTime(at)}</span> },
  ];
  return (
    <>
      <Panel
        title="Events"
        aside={
          <span class="buttons">
            <Badge tone={state === "live" ? "good" : "warn"}>{displayText(state, 60)}</Badge>
            <select aria-label="Kind of events" value={kind || "all"} onChange={(event) => setKind(event.currentTarget.value === "all" ? "" : event.currentTarget.value)}>
              {KINDS.map(([name]) => (
                <option key={name}>{name}</option>
              ))}
            </select>
            <input type="search" placeholder="Filter by text" aria-label="Filter events by text" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />
            <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
              {paused ? "Continue" : "Pause"}
            </button>
          </span>
        }
      >
        <Table label="Events" rows={list} columns={columns} id={({ id }) => String(id)} selected={String(selected?.id)} height={18} empty={events.length ? "No event matches." : "The daemon's buffer has no event yet."} />
      </Panel>
      {selected && (
        <Panel title={selected.type} aside={<button type="button" class="plain" aria-label="Close the event" onClick={() => setSelected(undefined)}>✕</button>}>
          <p>{sentence(selected.type, selected.data).text}</p>
          <pre tabIndex={0}>{displayText(indented(selected.data), 20_000)}</pre>
        </Panel>
      )}
    </>
  );
}

function indented(data: string): string {
  try {
    return JSON.stringify(JSON.parse(data), null, 2);
  } catch {
    return data;
  }
}
