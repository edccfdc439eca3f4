/** Which agents may run an app, and why others may not; asked of the plugins only on demand. */

import { useState } from "preact/hooks";
import { get } from "../lib/api";
import { displayText } from "../lib/format";
import { useLive } from "../lib/live";
import { Empty, Panel } from "./basics";

interface Placement {
  subscribed: boolean;
  matchers: string[];
  constraints: string[];
  agents: number;
  accepted: number;
  instances: number;
  placed: number;
  refusals: { condition: string; agents: number; values: { value: string | null; agents?: number }[]; examples: string[] }[];
  failure: { message: string } | null;
}

export function Placement({ parameter, id }: { parameter: string; id: string }) {
  const [asked, setAsked] = useState(false);
  const path = `/v1/plugins/explain/matcher?${parameter}=${encodeURIComponent(id)}`;
  const { value, error } = useLive(asked ? path : "", (signal) => get<Placement>(path, signal), 30_000);
  return (
    <Panel title="Placement" error={error} loading={asked && !value} aside={!asked && <button type="button" onClick={() => setAsked(true)}>Explain</button>}>
      {!asked && <Empty>Which agents may run it, and why others may not.</Empty>}
      {value && (
        <>
          <p>
            {value.accepted} of {value.agents} agents may run it; {value.placed} of {value.instances} instances are placed.
            {!value.subscribed && " The framework is not subscribed, so there are no offers."}
          </p>
          {value.constraints.length > 0 && <p class="note">Constraints: {displayText(value.constraints.join("; "), 500)}</p>}
          {value.failure && <p class="failed">{displayText(value.failure.message, 500)}</p>}
          <ul class="conditions">
            {value.refusals.map(({ condition, agents, values, examples }, at) => (
              <li key={at} class="bad">
                <span>{displayText(condition, 500)}</span>
                <span>
                  {agents} {agents === 1 ? "agent" : "agents"}
                  {values.length > 0 && ` with ${displayText(values.slice(0, 3).map(({ value: one }) => one ?? "no value").join(", "), 200)}`}
                  {examples.length > 0 && `, such as ${displayText(examples.slice(0, 3).join(", "), 200)}`}
                </span>
              </li>
            ))}
          </ul>
        </>
      )}
    </Panel>
  );
}
