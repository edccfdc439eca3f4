/** Apps and pods with instances that wait, and why. */

import { api } from "../lib/apps";
import { appPath, change } from "../lib/api";
import { displayText, elapsedSince } from "../lib/format";
import { type Queue, type QueueItem, conditions, waitingSummary } from "../lib/waiting";
import { Action } from "./actions";
import { Empty, Panel, type PanelError } from "./basics";

export function Waiting(props: { queue: Queue | undefined; error?: PanelError; first?: string; refresh: () => void }) {
  const name = (item: QueueItem) => item.app?.id ?? item.pod?.id ?? "";
  const words = props.queue?.words ?? {};
  const list = [...(props.queue?.queue ?? [])].sort((a, b) => Number(name(b) === props.first) - Number(name(a) === props.first));
  return (
    <Panel title="Waiting" error={props.error} loading={!props.queue}>
      {list.length === 0 && <Empty>No instance is waiting.</Empty>}
      <ul class="items">
        {list.slice(0, 50).map((item) => (
          <li key={name(item)}>
            <div class="line">
              <a href={`#/apps${appPath(name(item))}`}>
                <b>{displayText(name(item), 200)}</b>
              </a>
              <span class="buttons">
                {item.count} waiting for {elapsedSince(item.since)}
                {!item.delay.overdue && (
                  <Action
                    label="Launch now"
                    question={`Launch ${displayText(name(item), 200)} now?`}
                    detail="The delay after its failures ends."
                    run={async () => {
                      await change("DELETE", api(`/v2/queue${appPath(name(item))}/delay`));
                      return `${displayText(name(item), 200)} is launched without its delay.`;
                    }}
                    done={props.refresh}
                  />
                )}
              </span>
            </div>
            <small>{displayText(waitingSummary(item, words), 500)}</small>
            <details>
              <summary>Condition by condition</summary>
              <ul class="conditions">
                {conditions(item, words).map(({ label, advice, declined, processed }) => (
                  <li key={label} class={declined > 0 ? "bad" : processed > 0 ? "good" : "dull"} title={declined > 0 ? advice : undefined}>
                    <span>{label}</span>
                    <span>
                      {processed === 0 ? "not tested" : declined > 0 ? `failed on ${declined} of ${processed} offers` : `passed on ${processed} offers`}
                    </span>
                  </li>
                ))}
              </ul>
              {item.app?.constraints?.map((constraint, at) => (
                <p key={at}>
                  <code>{displayText(constraint.join(" "), 200)}</code> rejected {item.reasons?.last_constraints[at] ?? 0} agents
                </p>
              ))}
              {item.reasons?.message && <p>{displayText(item.reasons.message)}</p>}
            </details>
          </li>
        ))}
      </ul>
      {list.length > 50 && <Empty>{list.length - 50} more</Empty>}
    </Panel>
  );
}

