/** What happened to an app, from the buffer of its events: sentences, and the tasks that have ended. */

import { useEffect, useRef, useState } from "preact/hooks";
import { type LogSource, api, isEnded, shortId, stateWord } from "../lib/apps";
import { displayText, localTime } from "../lib/format";
import { sentence } from "../lib/sentences";
import { follow } from "../lib/sse";
import { Badge, Empty, Panel } from "./basics";
import { type Column, Table } from "./table";

export interface Ended {
  id: string;
  state: string;
  message: string;
  host: string;
  agent?: string;
  at: string;
}

interface Happened {
  number: number;
  at: string;
  text: string;
}

export interface AppEventList {
  ended: Ended[];
  happened: Happened[];
  /** Why there are no events; undefined while they arrive. */
  error?: string;
}

/** The daemon's buffer is shorter than this, so all events in it are sent. */
const ALL_PAST = 1_000_000;
const MAX_ENDED = 20;
const MAX_HAPPENED = 200;
const UPDATE_INTERVAL = 250;
/** Events that repeat what others say. */
const REPEATED = /^(instance_changed_event|health_status_changed_event|deployment_step_success|event_stream_gap)$/;

/** Follows the events of an app, and calls `changed` after them. */
export function useAppEvents(id: string, changed: () => void): AppEventList {
  const [list, setList] = useState<AppEventList>({ ended: [], happened: [] });
  const latest = useRef(changed);
  latest.current = changed;
  useEffect(() => {
    let [ended, happened]: [Ended[], Happened[]] = [[], []];
    let timer: ReturnType<typeof setTimeout> | undefined;
    let number = 0;
    let error: string | undefined;
    setList({ ended, happened });
    const update = () => {
      timer ??= setTimeout(() => {
        timer = undefined;
        setList({ ended, happened, error });
      }, UPDATE_INTERVAL);
    };
    const filter = encodeURIComponent(`subject == ${JSON.stringify(id)}`);
    const stop = follow(api(`/v2/events?ids=true&plan-format=light&filter=${filter}`), {
      event: ({ type, data }) => {
        const task = type === "status_update_event" ? endedTask(data) : undefined;
        if (task) ended = [task, ...ended].slice(0, MAX_ENDED);
        number += 1;
        if (!REPEATED.test(type)) happened = [{ number, at: timestamp(data), text: sentence(type, data).text }, ...happened].slice(0, MAX_HAPPENED);
        update();
        latest.current();
      },
      state: (failure) => {
        error = failure;
        update();
      },
    }, ALL_PAST);
    return () => {
      stop();
      clearTimeout(timer);
    };
  }, [id]);
  return list;
}

function endedTask(data: string): Ended | undefined {
  try {
    const { taskId, taskStatus, message, host, slaveId, timestamp: at } = JSON.parse(data) as Record<string, string>;
    if (!taskId || !taskStatus || !isEnded(taskStatus)) return undefined;
    return { id: taskId, state: taskStatus, message: message ?? "", host: host ?? "", agent: slaveId, at: at ?? "" };
  } catch {
    return undefined;
  }
}

function timestamp(data: string): string {
  return /"timestamp":"([^"]+)"/.exec(data)?.[1] ?? "";
}

export function EndedTasks({ ended, log }: { ended: Ended[]; log: (source: LogSource) => void }) {
  const columns: Column<Ended>[] = [
    { title: "Task", width: "3fr", cell: ({ id }) => <span title={displayText(id, 300)}>{displayText(shortId(id), 100)}</span> },
    { title: "Ended", width: "5rem", cell: ({ state }) => <Badge tone={/FINISHED|KILLED/.test(state) ? "dull" : "bad"}>{stateWord(state)}</Badge> },
    { title: "Reason", width: "3fr", cell: ({ message }) => <span title={displayText(message, 1000)}>{displayText(message, 500)}</span> },
    { title: "Host", width: "2fr", wide: true, cell: ({ host }) => displayText(host, 100) },
    { title: "At", width: "9rem", wide: true, cell: ({ at }) => localTime(at) },
    {
      title: "",
      width: "4rem",
      end: true,
      cell: ({ id, agent }) =>
        agent && (
          <button type="button" onClick={() => log({ id, agent })} aria-label={`Log of the ended task ${displayText(id, 200)}`}>
            Log
          </button>
        ),
    },
  ];
  return (
    <>
      <h3>Ended tasks</h3>
      <Table label="Ended tasks" rows={ended} columns={columns} id={({ id, state }) => `${id} ${state}`} height={6} empty="No task has ended, as far as the daemon's buffer of events reaches." />
    </>
  );
}

export function AppEvents({ events }: { events: AppEventList }) {
  const { happened, error } = events;
  return (
    <Panel title="What happened" aside={error && <Badge tone="warn">{displayText(error, 60)}</Badge>}>
      {happened.length === 0 ? (
        <Empty>The daemon's buffer has no event of it.</Empty>
      ) : (
        <ul class="happened" tabIndex={0} aria-label="Events, newest first">
          {happened.map(({ number, at, text }) => (
            <li key={number}>
              <time>{localTime(at)}</time> {text}
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}
