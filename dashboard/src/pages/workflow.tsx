/** Jobs of the workflow engine: pending jobs and their reasons, states, output. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, change, get, servicePath } from "../lib/api";
import { duration, megabytes, displayText, localTime, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import { link, useQuery } from "../lib/route";
import { Action } from "../parts/actions";
import { Badge, Panel, type Tone } from "../parts/basics";
import { Log } from "../parts/log";
import { Placement } from "../parts/placement";
import { type Column, Table } from "../parts/table";

const api = (path: string) => servicePath("workflow", path);

interface QueuedJob {
  task_id: string;
  waited: number;
  cpus: number;
  mem: number;
  priority: number;
  reason: { message: string; advice?: string };
}

interface Job {
  task_id: string;
  state: string;
  message: string;
  at: string;
}

/** Maximum number of jobs that are kept: those that changed last. */
const MAX_JOBS = 20_000;

/** The last state of each job, updated from the feed of changes. */
function useJobs(): { jobs: Job[] | undefined; error: Failure | undefined } {
  const [jobs, setJobs] = useState<Job[]>();
  const [error, setError] = useState<Failure>();
  const jobsById = useRef(new Map<string, Job>());
  useEffect(() => {
    const control = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let since = 0;
    const poll = async (wait: number) => {
      let pause = 250;
      try {
        const path = api(`/v0/events?since=${since}&wait=${wait}&limit=10000`);
        const page = await get<{ events: Job[]; next: number; reset: boolean }>(path, control.signal);
        if (page.reset) jobsById.current.clear();
        for (const job of page.events) {
          jobsById.current.delete(job.task_id);
          jobsById.current.set(job.task_id, job);
        }
        for (const id of jobsById.current.keys()) {
          if (jobsById.current.size <= MAX_JOBS) break;
          jobsById.current.delete(id);
        }
        since = page.next;
        setError(undefined);
        setJobs([...jobsById.current.values()].reverse());
      } catch (failure) {
        if (control.signal.aborted) return;
        setError(failure instanceof Failure ? failure : new Failure(-1, String(failure)));
        pause = 3000;
      }
      if (!control.signal.aborted) timer = setTimeout(() => void poll(document.hidden ? 0 : 15), document.hidden ? 5000 : pause);
    };
    void poll(0);
    return () => {
      control.abort();
      clearTimeout(timer);
    };
  }, []);
  return { jobs, error };
}

const ENDED_STATES = /FINISHED|FAILED|KILLED|ERROR|LOST|DROPPED|GONE/;

function tone(state: string): Tone {
  if (state.includes("FINISHED")) return "good";
  if (/FAILED|ERROR|LOST|DROPPED|GONE/.test(state)) return "bad";
  if (state.includes("KILL")) return "dull";
  return "info";
}

export function Workflow({ selected }: { selected: string }) {
  const queue = useLive("queue", (signal) =>
    get<{ count: number; queue: QueuedJob[] }>(api("/v0/queue?limit=1000"), signal), 3_000);
  const { jobs, error } = useJobs();
  const [filter, setFilter] = useQuery("q");
  const list = (jobs ?? []).filter(({ task_id, state }) => `${task_id} ${state}`.toLowerCase().includes(filter.toLowerCase()));

  const waiting: Column<QueuedJob>[] = [
    { title: "Job", width: "2fr", cell: ({ task_id }) => <a href={link("workflow", task_id)} title={displayText(task_id, 300)}>{displayText(task_id, 200)}</a> },
    { title: "Waits", width: "6rem", cell: ({ waited }) => duration(waited) },
    { title: "Priority", width: "5rem", end: true, wide: true, cell: ({ priority }) => priority },
    { title: "Needs", width: "9rem", wide: true, cell: ({ cpus, mem }) => `${oneDecimal(cpus)} CPUs, ${megabytes(mem)}` },
    { title: "Why", width: "3fr", cell: ({ reason: { message, advice } }) => <span title={displayText(`${message}. ${advice ?? ""}`)}>{displayText(message, 500)}</span> },
  ];
  const columns: Column<Job>[] = [
    { title: "Job", width: "3fr", sort: ({ task_id }) => task_id, cell: ({ task_id }) => <a href={`#/workflow/${encodeURIComponent(task_id)}`}>{displayText(task_id, 200)}</a> },
    { title: "State", width: "7rem", sort: ({ state }) => state, cell: ({ state }) => <Badge tone={tone(state)}>{displayText(state.replace(/^TASK_/, "").toLowerCase(), 30)}</Badge> },
    { title: "Message", width: "3fr", wide: true, cell: ({ message }) => <span title={displayText(message)}>{displayText(message, 300)}</span> },
    { title: "Changed", width: "9rem", wide: true, sort: ({ at }) => at, cell: ({ at }) => localTime(at) },
    {
      title: "",
      width: "4.5rem",
      end: true,
      cell: ({ task_id, state }) => (
        <Action
          label="Kill"
          danger
          question={`Kill the job ${displayText(task_id, 200)}?`}
          disabled={ENDED_STATES.test(state) ? "It has ended." : undefined}
          run={async () => {
            await change("DELETE", api(`/v0/task/${encodeURIComponent(task_id)}`));
            return `The job ${displayText(task_id, 200)} is being killed.`;
          }}
        />
      ),
    },
  ];
  return (
    <>
      <Panel title={`Queue${queue.value ? ` (${queue.value.count})` : ""}`} error={queue.error} loading={!queue.value}>
        <Table label="Queue" rows={queue.value?.queue ?? []} columns={waiting} id={({ task_id }) => task_id} height={8} empty="No job is waiting." />
      </Panel>
      <Panel
        title="Jobs"
        error={error}
        loading={!jobs}
        aside={<input type="search" placeholder="Filter by id or state" aria-label="Filter jobs" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />}
      >
        <Table label="Jobs" rows={list} columns={columns} id={({ task_id }) => task_id} selected={selected} empty="No job is known." height={12} />
      </Panel>
      {selected && queue.value?.queue.some(({ task_id }) => task_id === selected) && <Placement key={selected} parameter="job" id={selected} />}
      {selected && (
        <Panel title={`Output of ${displayText(selected, 200)}`} aside={<a href="#/workflow" aria-label="Close the output">✕</a>}>
          <Log
            title={selected}
            source={(stream, offset, length) => {
              const more = length === undefined ? "" : `&length=${length}`;
              return api(`/v0/task/${encodeURIComponent(selected)}/log?stream=${stream}&offset=${offset ?? 0}${more}`);
            }}
          />
        </Panel>
      )}
    </>
  );
}
