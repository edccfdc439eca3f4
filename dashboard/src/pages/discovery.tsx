/** Names and DNS records, a lookup form, and the rates of queries. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Failure, get, servicePath, getText } from "../lib/api";
import { formatCount, duration, micros, displayText, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import { useQuery } from "../lib/route";
import { Series, samples, sum } from "../lib/metrics";
import type { Overview } from "../lib/overview";
import { Badge, Empty, Facts, Panel, Sparkline } from "../parts/basics";
import { type Column, Table } from "../parts/table";

const api = (path: string) => servicePath("discovery", path);

interface RecordRow {
  name: string;
  type: string;
  value: string;
  task: string;
}

interface Enumeration {
  frameworks: { name: string; tasks: { name: string; id: string; records: { name: string; host: string; rtype: string }[] }[] }[];
}

/** The plotted values, sampled from the daemon's metrics. */
function useRates() {
  const series = useRef({ queries: new Series(), forwarded: new Series(), http: new Series(), types: new Map<string, Series>() });
  return useLive("rates", async (signal) => {
    const page = await getText("/metrics", signal);
    const [at, { queries, forwarded, http, types }] = [performance.now(), series.current];
    const querySamples = samples(page, "transom_discovery_queries_total");
    queries.counter(sum(querySamples), at);
    forwarded.counter(sum(samples(page, "transom_discovery_upstream_latency_seconds_count")), at);
    http.counter(sum(samples(page, "transom_discovery_http_requests_total")), at);
    const kinds = new Map<string, number>();
    for (const { labels, value } of querySamples) {
      const name = Object.values(labels).join(" ");
      kinds.set(name, (kinds.get(name) ?? 0) + value);
    }
    for (const [name, value] of kinds) {
      let kind = types.get(name);
      if (!kind) types.set(name, (kind = new Series()));
      kind.counter(value, at);
    }
    const total = (name: string) => sum(samples(page, name));
    const upstreamQueries = total("transom_discovery_upstream_latency_seconds_count");
    return {
      records: total("transom_discovery_zone_records"),
      serial: total("transom_discovery_zone_serial"),
      age: total("transom_discovery_zone_age_seconds"),
      invalid: total("transom_discovery_zone_invalid_entries"),
      upstreams: samples(page, "transom_discovery_upstream_healthy"),
      latency: upstreamQueries > 0 ? (1e6 * total("transom_discovery_upstream_latency_seconds_sum")) / upstreamQueries : null,
      kinds: [...kinds].sort(([, a], [, b]) => b - a),
      series: series.current,
    };
  }, 3_000);
}

export function Discovery({ overview }: { overview: Overview | undefined }) {
  const { value, error } = useRates();
  const state = overview?.services.find(({ name }) => name === "discovery");
  if (overview && !state) {
    return (
      <Panel title="Discovery">
        <Empty>This daemon answers no lookups: its configuration has no section [discovery].</Empty>
      </Panel>
    );
  }
  const last = (series: Series | undefined) => oneDecimal(series?.values.at(-1) ?? 0);
  return (
    <>
      <div class="columns">
        <Lookup />
        <Panel
          title="Zone"
          error={error}
          loading={!value}
          aside={state && <Badge tone={state.ready ? "good" : "bad"}>{displayText(state.source ?? "", 30)}</Badge>}
        >
          {value && (
            <>
              <Facts
                facts={[
                  ["Records", formatCount(value.records)],
                  ["Serial", String(value.serial)],
                  ["Last change", `${duration(value.age)} ago`],
                  ["Invalid entries", formatCount(value.invalid)],
                ]}
              />
              <h3>Forwarding</h3>
              {value.upstreams.length === 0 ? (
                <Empty>No resolver is configured: other names are refused.</Empty>
              ) : (
                <ul class="chips">
                  {value.upstreams.map(({ labels, value: healthy }) => (
                    <li key={Object.values(labels).join()}>
                      <Badge tone={healthy > 0 ? "good" : "bad"}>{healthy > 0 ? "answers" : "timed out"}</Badge>{" "}
                      {displayText(Object.values(labels).join(" "), 100)}
                    </li>
                  ))}
                  <li>mean {micros(value.latency === null ? null : Math.round(value.latency))}</li>
                </ul>
              )}
            </>
          )}
        </Panel>
      </div>
      <Panel title="Queries" error={error} loading={!value}>
        {value && (
          <>
            <div class="sparks">
              <Sparkline label="DNS queries per second" values={value.series.queries.values} text={last(value.series.queries)} />
              <Sparkline label="Forwarded per second" values={value.series.forwarded.values} text={last(value.series.forwarded)} />
              <Sparkline label="HTTP requests per second" values={value.series.http.values} text={last(value.series.http)} />
            </div>
            <Table
              label="Queries by kind"
              rows={value.kinds}
              columns={[
                { title: "Answer", width: "2fr", cell: ([name]) => displayText(name, 200) },
                { title: "Queries", width: "8rem", end: true, cell: ([, total]) => formatCount(total) },
                { title: "Per second", width: "8rem", end: true, cell: ([name]) => last(value.series.types.get(name)) },
              ]}
              id={([name]) => name}
              height={8}
              empty="No query has been answered."
            />
          </>
        )}
      </Panel>
      <Records />
    </>
  );
}

function Lookup() {
  const [name, setName] = useQuery("name");
  const [answer, setAnswer] = useState<{ asked: string; rows: [string, string][]; error?: string }>();
  const lookUp = async () => {
    const query = name.trim();
    if (!query) return;
    try {
      const path = `/v1/${query.startsWith("_") ? "services" : "hosts"}/${encodeURIComponent(query)}?strict=true`;
      const addresses = await get<{ host: string; ip: string; port?: string }[]>(api(path));
      setAnswer({ asked: query, rows: addresses.map(({ host, ip, port }) => [host, port ? `${ip}:${port}` : ip]) });
    } catch (failure) {
      const missing = failure instanceof Failure && failure.status === 404;
      setAnswer({ asked: query, rows: [], error: missing ? "no such name" : failure instanceof Error ? failure.message : String(failure) });
    }
  };
  // A link with a name is answered when it is opened.
  useEffect(() => void lookUp(), []);
  return (
    <Panel title="Lookup">
      <form
        class="lookup"
        onSubmit={(event) => {
          event.preventDefault();
          void lookUp();
        }}
      >
        <input
          type="text"
          aria-label="Name to look up"
          placeholder="web.shop.marathon.mesos or _web.shop._tcp.marathon.mesos"
          value={name}
          maxLength={255}
          spellcheck={false}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <button type="submit" class="primary">
          Look up
        </button>
      </form>
      <div aria-live="polite">
        {answer && (answer.error ? (
          <p class="failed">{displayText(answer.asked, 255)}: {displayText(answer.error, 300)}</p>
        ) : (
          <table class="plain">
            <caption>{displayText(answer.asked, 255)}</caption>
            <tbody>
              {answer.rows.map(([host, address], at) => (
                <tr key={at}>
                  <td>{displayText(host, 255)}</td>
                  <td><code>{displayText(address, 100)}</code></td>
                </tr>
              ))}
            </tbody>
          </table>
        ))}
      </div>
    </Panel>
  );
}

function Records() {
  const [requested, setRequested] = useState(false);
  const [filter, setFilter] = useState("");
  const { value, error } = useLive(requested ? "records" : "", async (signal) => {
    const { frameworks } = await get<Enumeration>(api("/v1/enumerate"), signal);
    return frameworks.flatMap(({ name: framework, tasks }) =>
      tasks.flatMap(({ id, records }) =>
        records.map(({ name, host, rtype }): RecordRow => ({ name, type: rtype, value: host, task: id || framework }))));
  }, 15_000);
  const list = (value ?? []).filter(({ name, value: host }) => `${name} ${host}`.toLowerCase().includes(filter.toLowerCase()));
  const columns: Column<RecordRow>[] = [
    { title: "Name", width: "3fr", cell: ({ name }) => <span title={displayText(name, 300)}>{displayText(name, 255)}</span> },
    { title: "Type", width: "4rem", cell: ({ type }) => displayText(type, 20) },
    { title: "Value", width: "3fr", cell: ({ value: host }) => <span title={displayText(host, 300)}>{displayText(host, 255)}</span> },
    { title: "Task", width: "2fr", cell: ({ task }) => <span title={displayText(task, 300)}>{displayText(task, 200)}</span> },
  ];
  if (!requested) {
    return (
      <Panel title="Records">
        <p>
          <button type="button" onClick={() => setRequested(true)}>
            List all records
          </button>{" "}
          <small>On a large cluster this is a large download.</small>
        </p>
      </Panel>
    );
  }
  return (
    <Panel
      title={value ? `Records (${formatCount(value.length)})` : "Records"}
      error={error}
      loading={!value}
      aside={<input type="search" placeholder="Filter by name or value" aria-label="Filter records" value={filter} onInput={(event) => setFilter(event.currentTarget.value)} />}
    >
      <Table label="Records" rows={list} columns={columns} id={({ name, type, value: host, task }) => `${name} ${type} ${host} ${task}`} empty={filter ? "No record matches." : "There are no records."} />
    </Panel>
  );
}
