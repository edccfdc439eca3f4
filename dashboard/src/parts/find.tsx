/** A dialog that finds anything by its name (Ctrl-K), and opens its page. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Task, api } from "../lib/apps";
import { get, servicePath } from "../lib/api";
import { displayText } from "../lib/format";
import type { Overview } from "../lib/overview";
import { link } from "../lib/route";
import { type Item, search } from "../lib/search";
import type { Agent } from "../pages/cluster";
import { Badge, Modal } from "./basics";

/** The lists that are searched, each with the service that it needs; they are requested when the dialog opens. */
const SOURCES: { service?: string; items: (signal: AbortSignal) => Promise<Item[]> }[] = [
  {
    service: "apps",
    items: async (signal) => (await get<{ apps: { id: string }[] }>(api("/v2/apps"), signal)).apps.map(({ id }) => ({ kind: "app", name: id, href: link("apps", id) })),
  },
  {
    service: "apps",
    items: async (signal) =>
      (await get<{ id: string }[]>(api("/v2/pods/::status"), signal)).map(({ id }) => ({ kind: "pod", name: id, href: "#/apps" })),
  },
  {
    service: "apps",
    items: async (signal) =>
      (await get<{ tasks: Task[] }>(api("/v2/tasks"), signal)).tasks.map(({ id, host, appId }) => ({ kind: "task", name: id, detail: host, href: link("apps", appId) })),
  },
  {
    items: async (signal) =>
      (await get<{ agents: Agent[] }>("/v1/cluster/agents", signal)).agents.map(({ id, host }) => ({ kind: "agent", name: host, detail: id, href: link("agents", id) })),
  },
  {
    items: async (signal) =>
      (await get<{ plugins: { name: string }[] }>("/v1/plugins", signal)).plugins.map(({ name }) => ({ kind: "plugin", name, href: link("plugins", name) })),
  },
  {
    service: "workflow",
    items: async (signal) => {
      const { events } = await get<{ events: { task_id: string; state: string }[] }>(servicePath("workflow", "/v0/events?since=0&wait=0&limit=10000"), signal);
      const ids = new Map(events.map(({ task_id, state }) => [task_id, state]));
      return [...ids].map(([id, state]) => ({ kind: "job", name: id, detail: state.replace(/^TASK_/, "").toLowerCase(), href: link("workflow", id) }));
    },
  },
  {
    service: "discovery",
    items: async (signal) => {
      const { frameworks } = await get<{ frameworks: { tasks: { records: { name: string; host: string }[] }[] }[] }>(servicePath("discovery", "/v1/enumerate"), signal);
      const records = frameworks.flatMap(({ tasks }) => tasks.flatMap((task) => task.records));
      const names = new Map(records.map(({ name, host }) => [name, host]));
      return [...names].map(([name, host]) => ({ kind: "name", name, detail: host, href: `#/discovery?name=${encodeURIComponent(name.replace(/\.$/, ""))}` }));
    },
  },
];

export function Find({ overview, close }: { overview: Overview | undefined; close: () => void }) {
  const [query, setQuery] = useState("");
  const [items, setItems] = useState<Item[]>([]);
  const [missing, setMissing] = useState(0);
  const [selected, setSelected] = useState(0);
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const control = new AbortController();
    const runs = (service?: string) => !service || overview?.services.some(({ name }) => name === service);
    for (const source of SOURCES.filter(({ service }) => runs(service))) {
      source.items(control.signal).then(
        (found) => setItems((old) => [...old, ...found]),
        () => {
          if (!control.signal.aborted) setMissing((old) => old + 1);
        },
      );
    }
    input.current?.focus();
    return () => control.abort();
  }, []);

  const found = useMemo(() => search(items, query), [items, query]);
  const at = Math.min(selected, Math.max(0, found.length - 1));
  const go = (item: Item | undefined) => {
    if (!item) return;
    location.hash = item.href;
    close();
  };
  return (
    <Modal title="Find" close={close} wide>
      <input
        ref={input}
        type="search"
        class="find"
        aria-label="Find apps, tasks, hosts, jobs, agents, plugins and names"
        placeholder="App, task, host, job, agent, plugin or name"
        role="combobox"
        aria-expanded={found.length > 0}
        aria-controls="found"
        aria-activedescendant={found.length > 0 ? `found-${at}` : undefined}
        value={query}
        onInput={(event) => {
          setQuery(event.currentTarget.value);
          setSelected(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "Enter") go(found[at]);
          // The browser would only clear the field.
          else if (event.key === "Escape") close();
          else if (event.key === "ArrowDown") setSelected(Math.min(at + 1, found.length - 1));
          else if (event.key === "ArrowUp") setSelected(Math.max(at - 1, 0));
          else return;
          event.preventDefault();
        }}
      />
      <ul id="found" class="found" role="listbox" aria-label="Found">
        {found.map((item, index) => (
          <li key={`${item.kind} ${item.name}`} id={`found-${index}`} role="option" aria-selected={index === at} onClick={() => go(item)}>
            <Badge tone="dull">{item.kind}</Badge> <span>{displayText(item.name, 300)}</span> <small>{displayText(item.detail, 200)}</small>
          </li>
        ))}
      </ul>
      {query && found.length === 0 && <p class="empty">Nothing has this in its name.</p>}
      {missing > 0 && <p class="note">{missing} of the lists could not be read.</p>}
    </Modal>
  );
}
