/** The output of a task of the apps service, from its sandbox. */

import { type LogSource, api, shortId } from "../lib/apps";
import { get } from "../lib/api";
import { displayText } from "../lib/format";
import { useLive } from "../lib/live";
import { Empty } from "./basics";
import { Log } from "./log";

export function TaskLog({ source, close }: { source: LogSource; close: () => void }) {
  const info = useLive("info", (signal) => get<{ frameworkId: string | null }>(api("/v2/info"), signal), 60_000);
  const framework = info.value?.frameworkId;
  return (
    <section aria-label={`Log of ${displayText(source.id, 200)}`}>
      <h3>
        Log of {displayText(shortId(source.id), 100)}{" "}
        <button type="button" class="plain" onClick={close} aria-label="Close the log">
          ✕
        </button>
      </h3>
      {framework ? (
        <Log
          title={source.id}
          source={(stream, offset, length) => {
            const query = new URLSearchParams({ agent: source.agent, framework, task: source.id, stream });
            if (source.executor !== undefined) query.set("executor", source.executor);
            if (offset !== undefined) query.set("offset", String(offset));
            if (length !== undefined) query.set("length", String(length));
            return `/v1/cluster/log?${query.toString()}`;
          }}
        />
      ) : (
        <Empty>{info.error ? displayText(info.error.message) : "Loading…"}</Empty>
      )}
    </section>
  );
}
