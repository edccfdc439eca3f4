/** The tasks of an app, with their health and checks, and the reasons. */

import { type LogSource, type Task, api, healthOf, shortId, stateWord } from "../lib/apps";
import { appPath, change } from "../lib/api";
import { displayText, elapsedSince } from "../lib/format";
import { link } from "../lib/route";
import { Action } from "./actions";
import { Badge } from "./basics";
import { type Column, Table } from "./table";

export function Tasks(props: { id: string; tasks: Task[]; old: ReadonlySet<string>; done: () => void; log: (source: LogSource) => void }) {
  const columns: Column<Task>[] = [
    { title: "Task", width: "3fr", sort: ({ id }) => id, cell: ({ id }) => <span title={displayText(id, 300)}>{displayText(shortId(id), 100)}</span> },
    {
      title: "State",
      width: "7.5rem",
      wide: true,
      sort: ({ state }) => state,
      cell: ({ id, state }) => (
        <span title={props.old.has(id) ? "It has an older definition." : undefined}>
          <Badge tone={state === "TASK_RUNNING" ? "good" : "info"}>{stateWord(state)}</Badge>
          {props.old.has(id) && <Badge tone="warn">old</Badge>}
        </span>
      ),
    },
    {
      title: "Health",
      width: "4fr",
      sort: (task) => healthOf(task).word,
      cell: (task) => {
        const { word, tone, reason } = healthOf(task);
        return word ? <span title={reason}><Badge tone={tone}>{word}</Badge> {reason}</span> : <small class="narrow">{stateWord(task.state)}</small>;
      },
    },
    {
      title: "Host",
      width: "2fr",
      wide: true,
      sort: ({ host }) => host,
      cell: ({ host, slaveId, ports }) => <a href={link("agents", slaveId)}>{displayText(`${host}${ports?.length ? `:${ports.join(",")}` : ""}`, 100)}</a>,
    },
    { title: "Since", width: "6rem", wide: true, sort: ({ startedAt, stagedAt }) => startedAt ?? stagedAt ?? "", cell: ({ startedAt, stagedAt }) => elapsedSince(startedAt ?? stagedAt) },
    {
      title: "",
      width: "6.5rem",
      end: true,
      cell: (task) => (
        <span class="buttons">
          <button type="button" onClick={() => props.log({ id: task.id, agent: task.slaveId })} aria-label={`Log of ${displayText(task.id, 200)}`}>
            Log
          </button>
          <Action
            label="Kill"
            danger
            question={`Kill ${displayText(task.id, 200)}?`}
            detail={`1 of ${props.tasks.length} instances of ${displayText(props.id, 200)}, on ${displayText(task.host, 100)}. Another one replaces it.`}
            run={async () => {
              await change("DELETE", api(`/v2/apps${appPath(props.id)}/tasks/${encodeURIComponent(task.id)}`));
              return `${displayText(task.id, 200)} is being killed.`;
            }}
            done={props.done}
          />
        </span>
      ),
    },
  ];
  return <Table label="Tasks" rows={props.tasks} columns={columns} id={({ id }) => id} height={10} empty="No task is launched." />;
}
