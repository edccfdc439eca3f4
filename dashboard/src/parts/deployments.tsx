/** Running deployments: their steps, what they wait for, and how to end them. */

import type { ComponentChildren } from "preact";
import { type Deployment, api, deploymentNote } from "../lib/apps";
import { change, get } from "../lib/api";
import { displayText, elapsedSince, localTime } from "../lib/format";
import { useLive } from "../lib/live";
import { link } from "../lib/route";
import { type Queue, waitingSummary } from "../lib/waiting";
import { Action } from "./actions";
import { Badge, Empty, Facts, Panel, type PanelError } from "./basics";

export function Deployments(props: { list: Deployment[] | undefined; error?: PanelError; refresh: () => void }) {
  const { list } = props;
  return (
    <Panel title="Deployments" error={props.error} loading={!list}>
      {list?.length === 0 && <Empty>No deployment is running.</Empty>}
      <ul class="items">
        {list?.slice(0, 50).map((deployment) => (
          <DeploymentItem key={deployment.id} deployment={deployment} refresh={props.refresh} />
        ))}
      </ul>
      {list && list.length > 50 && <Empty>{list.length - 50} more</Empty>}
    </Panel>
  );
}

export function DeploymentItem(props: { deployment: Deployment; refresh: () => void; children?: ComponentChildren }) {
  const { deployment, refresh } = props;
  const { id, version, currentStep, totalSteps, currentActions, canary, deadline } = deployment;
  const subjects = [...deployment.affectedApps, ...(deployment.affectedPods ?? [])];
  const path = api(`/v2/deployments/${encodeURIComponent(id)}`);
  const actions = currentActions.map(({ action, app, pod }) => `${action} ${app ?? pod ?? ""}`);
  const count = `${subjects.length} ${subjects.length === 1 ? "app or pod" : "apps and pods"}`;
  return (
    <li>
      <div class="line">
        <a href={link("deployments", id)}>
          <b>{displayText(subjects.slice(0, 3).join(", "), 200)}{subjects.length > 3 && ` and ${subjects.length - 3} more`}</b>
        </a>
        <span class="buttons">
          {canary?.state === "held" && (
            <Action
              label="Continue"
              question="Continue the restart?"
              detail={`${displayText(canary.instances, 40)} new instances are healthy; the others are replaced now.`}
              run={async () => {
                await change("POST", `${path}/continue`);
                return `Deployment ${id} continues.`;
              }}
              done={refresh}
            />
          )}
          <Action
            label="Stop"
            danger
            question="Stop the deployment where it is?"
            detail={`${count}: the definitions stay as they are now, and nothing is restored.`}
            run={async () => {
              await change("DELETE", `${path}?force=true`);
              return `Deployment ${id} is stopped.`;
            }}
            done={refresh}
          />
          <Action
            label="Roll back"
            danger
            question="Roll the deployment back?"
            detail={`A new deployment restores the previous definitions of ${count}.`}
            run={async () => `Deployment ${id} is rolled back${deploymentNote(await change("DELETE", path))}.`}
            done={refresh}
          />
        </span>
      </div>
      <progress value={currentStep - 0.5} max={totalSteps} aria-label={`Step ${currentStep} of ${totalSteps}`} />
      <small>
        Step {currentStep} of {totalSteps}: {displayText(actions.slice(0, 3).join(", "), 300)} · for {elapsedSince(version)}
        {canary && ` · canary ${displayText(canary.state, 20)}`}
        {deadline && ` · deadline ${localTime(deadline)}`}
      </small>
      {props.children}
    </li>
  );
}

/** The page of one deployment: all its steps, and why the present one does not end. */
export function DeploymentPage({ id }: { id: string }) {
  const { value, error, refresh } = useLive(`deployment ${id}`, async (signal) => {
    const list = await get<Deployment[]>(api("/v2/deployments?embed=canary&embed=deadline"), signal);
    return { deployment: list.find((one) => one.id === id) };
  }, 3_000);
  const queue = useLive("queue", (signal) => get<Queue>(api("/v2/queue?embed=reasons"), signal), 5_000);
  const title = `Deployment ${displayText(id, 60)}`;
  const deployment = value?.deployment;
  if (!deployment) {
    return (
      <Panel title={title} error={error} loading={!value}>
        <Empty>
          It does not run: it has ended, or there was none. <a href="#/events">Events</a> may tell how it ended.
        </Empty>
      </Panel>
    );
  }
  const subjects = [...deployment.affectedApps, ...(deployment.affectedPods ?? [])];
  const waiting = queue.value?.queue.filter((item) => subjects.includes(item.app?.id ?? item.pod?.id ?? "")) ?? [];
  return (
    <>
      <Panel title={title} error={error} aside={<a href="#/apps">All apps</a>}>
        <Facts
          facts={[
            ["Started", `${localTime(deployment.version)}, ${elapsedSince(deployment.version)} ago`],
            ["Step", `${deployment.currentStep} of ${deployment.totalSteps}`],
            ["Apps and pods", String(subjects.length)],
          ]}
        />
        <ul class="items">
          <DeploymentItem deployment={deployment} refresh={refresh} />
        </ul>
        {waiting.map((item) => (
          <p class="note" key={item.app?.id ?? item.pod?.id}>
            <a href={link("apps", item.app?.id ?? item.pod?.id)}>{displayText(item.app?.id ?? item.pod?.id, 200)}</a> waits for {item.count}:{" "}
            {displayText(waitingSummary(item, queue.value?.words ?? {}), 500)}
          </p>
        ))}
      </Panel>
      <Panel title="Steps">
        <ol class="steps">
          {deployment.steps?.map(({ actions }, at) => (
            <li key={at} aria-current={at + 1 === deployment.currentStep ? "step" : undefined}>
              {at + 1 < deployment.currentStep && <Badge tone="good">done</Badge>}
              {at + 1 === deployment.currentStep && <Badge tone="info">now</Badge>}{" "}
              {actions.slice(0, 20).map(({ action, app, pod }, index) => (
                <span key={index}>
                  {index > 0 && ", "}
                  {displayText(action, 60)} <a href={link("apps", app ?? pod)}>{displayText(app ?? pod, 200)}</a>
                </span>
              ))}
              {actions.length > 20 && ` and ${actions.length - 20} more`}
            </li>
          ))}
        </ol>
      </Panel>
    </>
  );
}
