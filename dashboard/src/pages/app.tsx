/** One app: how it does and why, its tasks, definition, versions, names and placement. */

import { useEffect, useState } from "preact/hooks";
import { type AppDetail, type Deployment, type LogSource, TONES, api, deploymentNote, oldTasks, pathOf } from "../lib/apps";
import { change, get } from "../lib/api";
import { compare, definitionText } from "../lib/compare";
import { displayText, elapsedSince, localTime, megabytes, oneDecimal } from "../lib/format";
import { useLive } from "../lib/live";
import type { Overview } from "../lib/overview";
import { link } from "../lib/route";
import { appHealth } from "../lib/tree";
import { type Queue, waitingSummary } from "../lib/waiting";
import { Action } from "../parts/actions";
import { AppActions } from "../parts/appactions";
import { Badge, Empty, Facts, Panel, Prose } from "../parts/basics";
import { DeploymentItem } from "../parts/deployments";
import { Difference } from "../parts/difference";
import { AppEvents, type Ended, EndedTasks, useAppEvents } from "../parts/appevents";
import { Names } from "../parts/names";
import { Placement } from "../parts/placement";
import { TaskLog } from "../parts/tasklog";
import { Tasks } from "../parts/tasks";
import { Waiting } from "../parts/waiting";

const EMBED = "?embed=app.tasks&embed=app.counts&embed=app.deployments&embed=app.lastTaskFailure&embed=app.readiness&embed=app.failing&embed=app.checkFailure";

export function AppPage({ id, overview }: { id: string; overview: Overview | undefined }) {
  const { value, error, refresh, refreshSoon } = useLive(id, async (signal) => (await get<{ app: AppDetail }>(pathOf(id) + EMBED, signal)).app, 5_000);
  const deployments = useLive(`deployments of ${id}`, async (signal) => {
    const list = await get<Deployment[]>(api("/v2/deployments?embed=canary&embed=deadline"), signal);
    return list.filter(({ affectedApps }) => affectedApps.includes(id));
  }, 5_000);
  const queue = useLive(`queue of ${id}`, async (signal) => {
    const all = await get<Queue>(api("/v2/queue?embed=reasons"), signal);
    return { ...all, queue: all.queue.filter(({ app }) => app?.id === id) };
  }, 5_000);
  const [log, setLog] = useState<LogSource>();
  const changed = () => {
    refreshSoon();
    deployments.refreshSoon();
    queue.refreshSoon();
  };
  const events = useAppEvents(id, changed);
  const done = () => {
    refresh();
    deployments.refresh();
    queue.refresh();
  };
  const name = displayText(id, 200);
  if (error?.status === 404) {
    return (
      <Panel title={name}>
        <Empty>
          There is no app {name}. It may be a pod or a group, or it was deleted: <a href={`#/apps?q=${encodeURIComponent(id)}`}>search in the list</a>.
        </Empty>
      </Panel>
    );
  }
  const waiting = queue.value?.queue[0];
  return (
    <>
      <Panel title={name} error={error} loading={!value} aside={<a href="#/apps">All apps</a>}>
        {value && (
          <>
            <AppActions app={value} done={done} />
            {value.failing && (
              <p class="failed" role="alert">
                <Prose text={`${value.failing.message.replace(/\.?$/, ".")} ${value.failing.advice}`} />
              </p>
            )}
            <Summary app={value} />
          </>
        )}
      </Panel>
      {deployments.value && deployments.value.length > 0 && value && (
        <Panel title="Deployment" error={deployments.error}>
          <ul class="items">
            {deployments.value.map((deployment) => (
              <DeploymentItem key={deployment.id} deployment={deployment} refresh={done}>
                <Progress app={value} why={waiting && waitingSummary(waiting, queue.value?.words ?? {})} />
              </DeploymentItem>
            ))}
          </ul>
        </Panel>
      )}
      {waiting && <Waiting queue={queue.value} error={queue.error} refresh={done} />}
      {value && (
        <Panel title="Tasks">
          <Tasks id={id} tasks={value.tasks} old={new Set(oldTasks(value).map((task) => task.id))} done={done} log={setLog} />
          {log && <TaskLog key={log.id} source={log} close={() => setLog(undefined)} />}
          <EndedTasks ended={withLast(events.ended, value)} log={setLog} />
        </Panel>
      )}
      <div class="columns">
        {value && <Names app={value} overview={overview} />}
        <Placement parameter="app" id={id} />
      </div>
      {value && <Definition app={value} done={done} />}
      <AppEvents events={events} />
    </>
  );
}

/** The ended tasks that events tell of, and the last failure, which the app itself keeps for longer. */
function withLast(ended: Ended[], { lastTaskFailure: last }: AppDetail): Ended[] {
  if (!last || ended.some(({ id }) => id === last.taskId)) return ended;
  return [...ended, { id: last.taskId, state: last.state, message: last.message, host: last.host, agent: last.slaveId, at: last.timestamp }];
}

function Summary({ app }: { app: AppDetail }) {
  const health = appHealth(app);
  const labels = Object.entries(app.labels ?? {});
  return (
    <>
      <Facts
        facts={[
          ["State", <Badge tone={TONES[health]}>{health}</Badge>],
          ["Instances", `${app.tasksRunning} of ${app.instances} running`],
          ["Healthy", app.healthChecks?.length ? `${app.tasksHealthy}, unhealthy ${app.tasksUnhealthy}` : "no checks"],
          ["Needs", `${oneDecimal(app.cpus)} CPUs, ${megabytes(app.mem)}`],
          ["Changed", localTime(app.versionInfo?.lastConfigChangeAt ?? app.version)],
          ["Scaled", localTime(app.versionInfo?.lastScalingAt)],
        ]}
      />
      <p class="note">
        <code>{displayText(app.container?.docker?.image ?? app.cmd ?? app.args?.join(" ") ?? "", 500)}</code>
      </p>
      {app.dependencies && app.dependencies.length > 0 && (
        <p class="note">
          Depends on {app.dependencies.map((one, at) => <>{at > 0 && ", "}<a href={link("apps", one)}>{displayText(one, 200)}</a></>)}
        </p>
      )}
      {labels.length > 0 && (
        <p class="note">
          {labels.map(([name, text]) => (
            <a class="label" key={name} href={`#/apps?label=${encodeURIComponent(`${name}=${text}`)}`}>
              {displayText(`${name}=${text}`, 200)}
            </a>
          ))}
        </p>
      )}
    </>
  );
}

/** How far the deployment of an app is, and what it waits for. */
function Progress({ app, why }: { app: AppDetail; why: string | undefined }) {
  const old = oldTasks(app).length;
  const fresh = app.tasks.length - old;
  const unready = app.readinessCheckResults?.filter(({ ready }) => !ready) ?? [];
  const reasons: string[] = [];
  if (why) reasons.push(why);
  if (app.tasksUnhealthy > 0) reasons.push(`${app.tasksUnhealthy} unhealthy`);
  if (app.healthChecks?.length && app.tasksRunning > app.tasksHealthy + app.tasksUnhealthy) reasons.push("a running instance has no result of its health checks yet");
  if (app.tasksStaged > 0) reasons.push(`${app.tasksStaged} starting`);
  for (const { name, lastResponse } of unready) reasons.push(`the readiness check ${name} ${lastResponse ? `got ${lastResponse.status}` : "has no answer"}`);
  return (
    <p class="note">
      {fresh} of {app.instances} instances have the new definition, {old} an older one.
      {reasons.length > 0 && ` It waits: ${displayText(reasons.join("; "), 800)}.`}
    </p>
  );
}

function Definition({ app, done }: { app: AppDetail; done: () => void }) {
  const path = pathOf(app.id);
  const versions = useLive(`versions of ${app.id} ${app.version}`, async (signal) =>
    (await get<{ versions: string[] }>(`${path}/versions`, signal)).versions, 60_000);
  const [version, setVersion] = useState("");
  const [old, setOld] = useState<object>();
  useEffect(() => {
    setOld(undefined);
    if (!version) return;
    const control = new AbortController();
    get<object>(`${path}/versions/${encodeURIComponent(version)}`, control.signal).then(setOld, () => undefined);
    return () => control.abort();
  }, [version, path]);
  const present = definitionText(app);
  const lines = old ? compare(definitionText(old), present) : [];
  const name = displayText(app.id, 200);
  return (
    <Panel
      title="Definition"
      error={versions.error}
      aside={
        <span class="buttons">
          <select aria-label="Compare with a version" value={version} onChange={(event) => setVersion(event.currentTarget.value)}>
            <option value="">present definition</option>
            {versions.value?.filter((one) => one !== app.version).map((one) => (
              <option key={one} value={one}>
                {localTime(one)}, {elapsedSince(one)} ago
              </option>
            ))}
          </select>
          {old && (
            <Action
              label="Return to it"
              question={`Return ${name} to the version of ${localTime(version)}?`}
              detail={`${app.instances} instances are replaced by ones with the definition of that time, within the bounds of the upgrade strategy.`}
              disabled={lines.length === 0 ? "It does not differ from the present definition." : undefined}
              run={async () => `${name} returns to the version of ${localTime(version)}${deploymentNote(await change("PUT", path, { version }))}.`}
              done={() => {
                setVersion("");
                done();
              }}
            />
          )}
        </span>
      }
    >
      {!version && <pre tabIndex={0} aria-label="Definition">{displayText(present, 100_000)}</pre>}
      {version && !old && <Empty>Loading…</Empty>}
      {old && (
        <>
          <p class="note">What the present definition changed since {localTime(version)}.</p>
          {lines.length > 0 ? <Difference lines={lines} /> : <Empty>Nothing differs, except the number of instances at most.</Empty>}
        </>
      )}
    </Panel>
  );
}

