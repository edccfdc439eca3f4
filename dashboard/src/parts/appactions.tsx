/** The changes of an app: each names what it affects. */

import { useContext, useEffect, useState } from "preact/hooks";
import { type AppDetail, affected, deploymentNote, pathOf } from "../lib/apps";
import { Failure, change, get, servicePath } from "../lib/api";
import { compare, definitionText } from "../lib/compare";
import { displayText } from "../lib/format";
import { Action, READ_ONLY, Session } from "./actions";
import { Modal } from "./basics";
import { Difference } from "./difference";

export function AppActions({ app, done }: { app: AppDetail; done: () => void }) {
  const path = pathOf(app.id);
  const name = displayText(app.id, 200);
  const scale = async (instances: number) => `${name} is scaled to ${instances}${deploymentNote(await change("PUT", path, { instances }))}.`;
  const naming = (words: string) => async () => `${words} (${await affected(app)}).`;
  const noInstances = app.instances === 0 ? "It has no instances." : undefined;
  return (
    <div class="actions">
      <Action
        label="Scale"
        question={`Scale ${name}?`}
        number={{ label: "Instances", value: app.instances, max: 100_000 }}
        run={scale}
        done={done}
      />
      <Action
        label="Restart"
        question={`Restart ${name}?`}
        detail={naming("All instances are replaced, within the bounds of the upgrade strategy")}
        run={async () => `${name} restarts${deploymentNote(await change("POST", `${path}/restart`))}.`}
        done={done}
      />
      <Action
        label="Suspend"
        danger
        question={`Suspend ${name}?`}
        detail={naming("All instances are killed; the definition stays")}
        disabled={noInstances}
        run={() => scale(0)}
        done={done}
      />
      <Edit app={app} done={done} />
      <Action
        label="Delete"
        danger
        question={`Delete ${name}?`}
        detail={naming("All instances are killed and the definition is deleted")}
        confirmName={app.id}
        run={async () => {
          const answer = await change("DELETE", path);
          location.hash = "#/apps";
          return `${name} is being deleted${deploymentNote(answer)}.`;
        }}
      />
    </div>
  );
}

/** A button that opens the definition for a change, which is compared before it is sent. */
function Edit({ app, done }: { app: AppDetail; done: () => void }) {
  const { user } = useContext(Session);
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" disabled={user?.read_only} title={user?.read_only ? READ_ONLY : undefined} onClick={() => setOpen(true)}>
        Edit
      </button>
      {open && <Editor app={app} done={done} close={() => setOpen(false)} />}
    </>
  );
}

function Editor({ app, done, close }: { app: AppDetail; done: () => void; close: () => void }) {
  const { notify } = useContext(Session);
  // The definition at the time at which the editor was opened: it must not change while somebody writes.
  const [before] = useState(() => definitionText(app));
  const [text, setText] = useState(before);
  const [reviewed, setReviewed] = useState<object>();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  const name = displayText(app.id, 200);

  const review = () => {
    try {
      const parsed: unknown = JSON.parse(text);
      if (!parsed || typeof parsed !== "object" || Array.isArray(parsed)) throw new Error("a definition is an object");
      setReviewed(parsed);
      setError("");
    } catch (failure) {
      setError(displayText(failure instanceof Error ? failure.message : failure, 300));
    }
  };
  const send = async () => {
    setBusy(true);
    try {
      const answer = await change("PUT", `${pathOf(app.id)}?partialUpdate=false`, reviewed);
      notify(`${name} is changed${deploymentNote(answer)}.`);
      done();
      close();
    } catch (failure) {
      const status = failure instanceof Failure && failure.status > 0 ? `${failure.status}: ` : "";
      setError(`${status}${displayText(failure instanceof Error ? failure.message : failure, 1000)}`);
      setReviewed(undefined);
    }
    setBusy(false);
  };
  const lines = reviewed ? compare(before, definitionText(reviewed)) : [];
  return (
    <Modal title={reviewed ? `Change ${name}?` : `Edit ${name}`} close={close} wide>
      {error && <p class="failed" role="alert">{error}</p>}
      {reviewed ? (
        lines.length > 0 ? <Difference lines={lines} /> : <p>Nothing differs from the present definition.</p>
      ) : (
        <>
          <textarea class="editor" aria-label="Definition as JSON" spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} />
          <Members />
        </>
      )}
      <menu>
        <button type="button" onClick={reviewed ? () => setReviewed(undefined) : close}>
          {reviewed ? "Back" : "Cancel"}
        </button>
        {reviewed ? (
          <button type="button" class="primary" disabled={busy || lines.length === 0} onClick={() => void send()}>
            {busy ? "Working…" : "Change"}
          </button>
        ) : (
          <button type="button" class="primary" onClick={review}>
            Review
          </button>
        )}
      </menu>
    </Modal>
  );
}

interface Schema {
  description?: string;
  type?: string | string[];
}

interface Description {
  components: { schemas: Partial<Record<string, { properties?: Record<string, Schema> }>> };
}

/** The members of a definition, as the API describes them. */
function Members() {
  const [members, setMembers] = useState<[string, Schema][]>();
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (!open || members) return;
    get<Description>(servicePath("apps", "/v2/openapi.json")).then(
      ({ components: { schemas } }) => {
        const described = { ...schemas.AppInfo?.properties, ...schemas.App?.properties };
        const input = Object.entries(schemas.AppInput?.properties ?? {});
        setMembers(input.map(([name, schema]) => [name, { description: described[name]?.description, ...schema }]));
      },
      () => setMembers([]),
    );
  }, [open]);
  return (
    <details open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Members of a definition</summary>
      <dl class="members">
        {members?.map(([name, { description, type }]) => (
          <div key={name}>
            <dt>
              <code>{name}</code> <small>{displayText([type].flat().filter(Boolean).join(", "), 60)}</small>
            </dt>
            <dd>{displayText(description, 500)}</dd>
          </div>
        ))}
      </dl>
    </details>
  );
}
