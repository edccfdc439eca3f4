/** Where an app is reached: addresses of its tasks, its names in DNS, and what they resolve to. */

import { type AppDetail, api, dnsName } from "../lib/apps";
import { get, servicePath } from "../lib/api";
import { displayText } from "../lib/format";
import { useLive } from "../lib/live";
import type { Overview } from "../lib/overview";
import { Empty, Panel } from "./basics";

/** Addresses that are shown. */
const MAX_SHOWN = 20;

export function Names({ app, overview }: { app: AppDetail; overview: Overview | undefined }) {
  const discovery = overview?.services.find(({ name }) => name === "discovery");
  const domain = discovery?.summary?.domain;
  const info = useLive("framework", (signal) => get<{ name: string }>(api("/v2/info"), signal), 60_000);
  const name = info.value && typeof domain === "string" ? dnsName(app.id, info.value.name, domain) : "";
  const found = useLive(name, async (signal) => {
    const [task, ...rest] = name.split(`.${info.value?.name}.`);
    const lookup = (path: string) => get<{ ip?: string; port?: string }[]>(servicePath("discovery", path), signal);
    const [hosts, services] = await Promise.all([
      lookup(`/v1/hosts/${encodeURIComponent(name)}`),
      lookup(`/v1/services/${encodeURIComponent(`_${task}._tcp.${[info.value?.name, ...rest].join(".")}`)}`),
    ]);
    const text = (list: typeof hosts) => list.filter(({ ip }) => ip).map(({ ip, port }) => (port ? `${ip}:${port}` : (ip ?? "")));
    return { hosts: text(hosts), services: text(services) };
  }, 10_000);
  const endpoints = app.tasks.filter(({ state }) => state === "TASK_RUNNING").flatMap(({ host, ports }) => (ports ?? []).map((port) => `${host}:${port}`));
  const shown = (list: string[]) => `${list.slice(0, MAX_SHOWN).join(", ")}${list.length > MAX_SHOWN ? ` and ${list.length - MAX_SHOWN} more` : ""}`;
  return (
    <Panel title="Endpoints and names" error={found.error}>
      {endpoints.length === 0 ? <Empty>No running instance has a port.</Empty> : <p class="breaking"><code>{displayText(shown(endpoints), 2000)}</code></p>}
      {!discovery && <Empty>This daemon answers no lookups.</Empty>}
      {name && (
        <>
          <p class="breaking">
            <code>{displayText(name, 300)}</code>: {found.value?.hosts.length ? displayText(shown([...new Set(found.value.hosts)]), 1000) : "no address"}
          </p>
          {found.value && found.value.services.length > 0 && <p class="note breaking">SRV: {displayText(shown(found.value.services), 1000)}</p>}
        </>
      )}
    </Panel>
  );
}
