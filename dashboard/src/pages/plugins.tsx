/** Plugins: versions, grants, limits, calls and faults over time, rollouts and their differences, history. */

import { useEffect, useRef, useState } from "preact/hooks";
import { change, get } from "../lib/api";
import { formatCount, shortDigest, duration, megabytes, micros, displayText, localTime, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import { Series } from "../lib/metrics";
import { Action } from "../parts/actions";
import { Badge, Empty, Facts, Panel, Sparkline, type Tone } from "../parts/basics";
import { DropZone } from "../parts/drop";
import { type Column, Table } from "../parts/table";

interface Rollout {
  kind: string;
  version: string;
  digest: string;
  since: number;
  automatic: boolean;
  percent: number;
  calls: number;
  compared: number;
  differences: number;
  faults: number;
  p99_micros: number | null;
  serving_p99_micros: number | null;
  missing: string[];
  samples: { question: string; serving: string; candidate: string }[];
}

interface Plugin {
  name: string;
  world: string | null;
  version: string | null;
  summary: string | null;
  digest: string | null;
  admitted_at: number | null;
  state: string;
  refusal: string | null;
  disabled_reason: string | null;
  probation: number | null;
  in_flight: number;
  instances: number;
  calls: number;
  traps: number;
  timeouts: number;
  denials: number;
  p50_micros: number | null;
  p99_micros: number | null;
  queue: number;
  cpu_millis: number;
  memory_peak: number;
  last_trap: { at: number; fault: string; backtrace: string[] } | null;
  rollout: Rollout | null;
  signed_by: string | null;
}

interface AdmissionRecord {
  sequence: number;
  at: number;
  by: string;
  outcome: string | Record<string, unknown>;
  version?: string;
  digest?: string;
  grants?: Record<string, unknown>;
  limits?: Record<string, number>;
}

const TONES: Record<string, Tone> = { serving: "good", refused: "bad", disabled: "bad", fetching: "info", admitting: "info" };
const POLL_INTERVAL = 2_000;

/** The values of one plugin that are sampled while the page is open. */
class PluginSeries {
  readonly calls = new Series();
  readonly faults = new Series();
  readonly latency = new Series();

  add(plugin: Plugin, at: number): void {
    this.calls.counter(plugin.calls, at);
    this.faults.counter(plugin.traps + plugin.timeouts, at);
    this.latency.value(plugin.p99_micros ?? 0);
  }
}

export function PluginsPage({ selected }: { selected: string }) {
  const seriesByPlugin = useRef(new Map<string, PluginSeries>());
  const { value, error, refresh } = useLive("plugins", async (signal) => {
    const answer = await get<{ plugins: Plugin[]; dir: string; uploads?: boolean }>("/v1/plugins", signal);
    const at = performance.now();
    for (const plugin of answer.plugins) {
      let series = seriesByPlugin.current.get(plugin.name);
      if (!series) seriesByPlugin.current.set(plugin.name, (series = new PluginSeries()));
      series.add(plugin, at);
    }
    return answer;
  }, POLL_INTERVAL);
  const rate = (name: string) => seriesByPlugin.current.get(name)?.calls.values.at(-1);
  const columns: Column<Plugin>[] = [
    {
      title: "Plugin",
      width: "1.2fr",
      cell: ({ name, summary }) => (
        <a href={`#/plugins/${encodeURIComponent(name)}`} title={displayText(summary, 300)}>
          {displayText(name, 100)}
        </a>
      ),
    },
    { title: "World", width: "1.2fr", wide: true, cell: ({ world }) => displayText(world ?? "–", 60) },
    { title: "Version", width: "5rem", cell: ({ version }) => displayText(version ?? "–", 40) },
    {
      title: "State",
      width: "9rem",
      cell: ({ state, rollout, refusal }) => (
        <>
          <Badge tone={TONES[state] ?? "info"}>{displayText(state, 30)}</Badge>
          {rollout && <Badge tone="info">{displayText(rollout.kind, 30)}</Badge>}
          {refusal && state === "serving" && <Badge tone="warn">refused</Badge>}
        </>
      ),
    },
    { title: "Calls", width: "6rem", end: true, sort: ({ calls }) => calls, cell: ({ calls }) => formatCount(calls) },
    { title: "Per second", width: "6rem", wide: true, end: true, cell: ({ name }) => oneDecimal(rate(name) ?? 0) },
    { title: "Faults", width: "4.5rem", wide: true, end: true, cell: ({ traps, timeouts }) => formatCount(traps + timeouts) },
    { title: "p50", width: "5rem", wide: true, end: true, cell: ({ p50_micros }) => micros(p50_micros) },
    { title: "p99", width: "5rem", wide: true, end: true, cell: ({ p99_micros }) => micros(p99_micros) },
  ];
  const plugin = value?.plugins.find(({ name }) => name === selected);
  return (
    <>
      <Panel
        title="Plugins"
        error={error}
        loading={!value}
        aside={
          <Action
            label="Scan directory"
            question="Scan the plugin directory now?"
            detail={`Components that were put into ${displayText(value?.dir, 300)} are admitted.`}
            run={async () => {
              const answer = (await change("POST", "/v1/plugins/rescan")) as { changes?: unknown[] };
              return `The directory was scanned: ${answer.changes?.length ?? 0} changes.`;
            }}
            done={refresh}
          />
        }
      >
        <Table label="Plugins" rows={value?.plugins ?? []} columns={columns} id={({ name }) => name} selected={selected} height={12} empty="The plugin directory is empty." />
        {value?.uploads && <DropZone versions={new Map(value.plugins.map(({ name, version }) => [name, version]))} done={refresh} />}
        {value && !value.uploads && (
          <p class="note">
            A plugin is replaced by putting its new file into <code>{displayText(value.dir, 300)}</code>; it is admitted without a restart. Files can
            be dropped here if the daemon's configuration has <code>uploads = true</code> in the section <code>[plugins]</code>.
          </p>
        )}
      </Panel>
      {selected && value && !plugin && (
        <Panel title={displayText(selected, 100)}>
          <Empty>No plugin has this name.</Empty>
        </Panel>
      )}
      {plugin && <Detail key={plugin.name} plugin={plugin} series={seriesByPlugin.current.get(plugin.name)} refresh={refresh} />}
    </>
  );
}

function Detail({ plugin, series, refresh }: { plugin: Plugin; series: PluginSeries | undefined; refresh: () => void }) {
  const path = `/v1/plugins/${encodeURIComponent(plugin.name)}`;
  const name = displayText(plugin.name, 100);
  const history = useLive(`${plugin.name} ${plugin.digest} ${plugin.admitted_at}`, (signal) =>
    get<{ records: AdmissionRecord[] }>(`${path}/history`, signal), 15_000);
  const done = () => {
    refresh();
    history.refresh();
  };
  const newest = history.value?.records.find((record) => record.digest === plugin.digest);
  const grants = Object.entries(newest?.grants ?? {})
    .filter(([, value]) => value !== false && !(Array.isArray(value) && value.length === 0))
    .map(([grant, value]) => (value === true ? grant : `${grant} ${JSON.stringify(value)}`));
  const last = (values: number[] | undefined) => values?.at(-1) ?? 0;
  return (
    <Panel title={name} aside={<a href="#/plugins" aria-label="Close the plugin">✕</a>}>
      {plugin.summary && <p>{displayText(plugin.summary, 500)}</p>}
      {plugin.refusal && <p class="failed">Refused: {displayText(plugin.refusal)}</p>}
      {plugin.disabled_reason && <p class="failed">Disabled: {displayText(plugin.disabled_reason)}</p>}
      {series && (
        <div class="sparks">
          <Sparkline label="Calls per second" values={series.calls.values} text={oneDecimal(last(series.calls.values))} />
          <Sparkline label="p99" values={series.latency.values} text={micros(plugin.p99_micros)} />
          <Sparkline label="Faults per second" values={series.faults.values} text={oneDecimal(last(series.faults.values))} tone="bad" />
        </div>
      )}
      <Facts
        facts={[
          ["Version", displayText(`${plugin.version ?? "–"} (${shortDigest(plugin.digest)})`, 100)],
          ["Admitted", plugin.admitted_at ? localTime(plugin.admitted_at) : "–"],
          ["Probation", plugin.probation === null ? "no" : `${duration(plugin.probation)} left`],
          ["Signed by", displayText(plugin.signed_by ?? "–", 100)],
          ["Instances", `${plugin.instances}, ${plugin.in_flight} calls under way, ${plugin.queue} queued`],
          ["Faults", `${formatCount(plugin.traps)} traps, ${formatCount(plugin.timeouts)} timeouts, ${formatCount(plugin.denials)} denials`],
          ["Memory", `${megabytes(plugin.memory_peak / 1024 / 1024)} at most`],
          ["CPU time", `${oneDecimal(plugin.cpu_millis / 1000)} s`],
          ["Grants", grants.length ? displayText(grants.join(", "), 500) : "none"],
        ]}
      />
      {plugin.last_trap && (
        <details>
          <summary>Last fault, {localTime(plugin.last_trap.at)}: {displayText(plugin.last_trap.fault, 300)}</summary>
          <pre tabIndex={0}>{displayText(plugin.last_trap.backtrace.join("\n"), 10_000) || "No guest code was running."}</pre>
        </details>
      )}
      {newest?.limits && (
        <details>
          <summary>Limits</summary>
          <Facts facts={Object.entries(newest.limits).map(([limit, value]) => [limit, formatCount(value)])} />
        </details>
      )}
      {plugin.rollout && <Candidate name={plugin.name} path={path} rollout={plugin.rollout} done={done} />}
      <History name={plugin.name} path={path} serving={plugin.digest} records={history.value?.records} done={done} />
      <PluginLog path={path} name={name} />
    </Panel>
  );
}

function Candidate({ name, path, rollout, done }: { name: string; path: string; rollout: Rollout; done: () => void }) {
  return (
    <section class="candidate" aria-label={`Rollout of ${displayText(name, 100)}`}>
      <h3>
        {rollout.kind === "shadow" ? "Shadow" : "Canary"} {displayText(rollout.version, 60)}
      </h3>
      <div class="actions">
        <Action
          label="Promote"
          question={`Promote ${displayText(rollout.version, 60)} of ${displayText(name, 100)}?`}
          detail="It answers all calls from now on; the present version can be rolled back to."
          run={async () => {
            await change("POST", `${path}/promote`, {});
            return `${displayText(name, 100)} ${displayText(rollout.version, 60)} is promoted.`;
          }}
          done={done}
        />
        <Action
          label="Abort"
          danger
          question={`Stop the ${rollout.kind} of ${displayText(name, 100)}?`}
          detail="The serving version answers all calls."
          run={async () => {
            await change("POST", `${path}/abort`, {});
            return `The ${rollout.kind} of ${displayText(name, 100)} has stopped.`;
          }}
          done={done}
        />
      </div>
      <Facts
        facts={[
          ["Since", localTime(rollout.since)],
          ["Share", `${rollout.percent} %`],
          ["Calls", formatCount(rollout.calls)],
          ["Compared", `${formatCount(rollout.compared)}, ${formatCount(rollout.differences)} different`],
          ["Faults", formatCount(rollout.faults)],
          ["p99", `${micros(rollout.p99_micros)}, serving version ${micros(rollout.serving_p99_micros)}`],
          ["Promotion", rollout.automatic ? "automatic" : "by an operator"],
          ["Missing", rollout.missing.length ? displayText(rollout.missing.join("; "), 500) : "nothing"],
        ]}
      />
      {rollout.samples.length > 0 && (
        <table class="plain">
          <caption>Answers that differ</caption>
          <thead>
            <tr>
              <th scope="col">Call</th>
              <th scope="col">Serving version</th>
              <th scope="col">{rollout.kind === "shadow" ? "Shadow" : "Canary"}</th>
            </tr>
          </thead>
          <tbody>
            {rollout.samples.map((sample, at) => (
              <tr key={at}>
                <td><code>{displayText(sample.question, 500)}</code></td>
                <td><code>{displayText(sample.serving, 500)}</code></td>
                <td><code>{displayText(sample.candidate, 500)}</code></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function History(props: { name: string; path: string; serving: string | null; records: AdmissionRecord[] | undefined; done: () => void }) {
  const outcome = ({ outcome }: AdmissionRecord) => (typeof outcome === "string" ? outcome : JSON.stringify(outcome));
  const columns: Column<AdmissionRecord>[] = [
    { title: "No.", width: "3rem", end: true, cell: ({ sequence }) => sequence },
    { title: "When", width: "10rem", cell: ({ at }) => localTime(at) },
    { title: "Version", width: "6rem", cell: ({ version }) => displayText(version ?? "–", 40) },
    { title: "Digest", width: "8rem", wide: true, cell: (record) => <code>{shortDigest(record.digest)}</code> },
    { title: "Outcome", width: "1fr", cell: (record) => <span title={displayText(outcome(record))}>{displayText(outcome(record), 200)}</span> },
    { title: "By", width: "7rem", wide: true, cell: ({ by }) => displayText(by, 60) },
    {
      title: "",
      width: "6rem",
      end: true,
      cell: (record) => (
        <Action
          label="Roll back"
          danger
          question={`Roll ${displayText(props.name, 100)} back to record ${record.sequence}?`}
          detail={`Version ${displayText(record.version ?? "–", 40)} (${shortDigest(record.digest)}) is admitted again and serves.`}
          disabled={record.digest === props.serving ? "This version is serving." : record.digest ? undefined : "This version was never admitted."}
          run={async () => {
            await change("POST", `${props.path}/rollback`, { record: record.sequence });
            return `${displayText(props.name, 100)} was rolled back to record ${record.sequence}.`;
          }}
          done={props.done}
        />
      ),
    },
  ];
  return (
    <>
      <h3>History</h3>
      <Table label="Admission records" rows={props.records ?? []} columns={columns} id={({ sequence }) => String(sequence)} height={8} empty="There are no records." />
    </>
  );
}

function PluginLog({ path, name }: { path: string; name: string }) {
  const [lines, setLines] = useState<string[]>([]);
  const lastSequence = useRef(0);
  const { value } = useLive(`${path} log`, (signal) =>
    get<{ lines: { sequence: number; level: string; text?: string; message?: string }[] }>(`${path}/log?after=${lastSequence.current}`, signal), 3_000);
  useEffect(() => {
    if (!value?.lines.length) return;
    lastSequence.current = Math.max(lastSequence.current, ...value.lines.map((line) => line.sequence));
    const texts = value.lines.map((line) => `${line.level ?? ""} ${line.text ?? line.message ?? JSON.stringify(line)}`.trim());
    setLines((old) => [...old, ...texts].slice(-500));
  }, [value]);
  return (
    <details>
      <summary>Log ({lines.length} lines)</summary>
      <pre tabIndex={0} aria-label={`Log of ${name}`}>{lines.length ? displayText(lines.join("\n"), 100_000) : "No line was written."}</pre>
    </details>
  );
}
