/** Uploads files that replace a plugin, after a confirmation, and waits for the daemon's decision. */

import { useContext, useRef, useState } from "preact/hooks";
import { type Uploaded, get, upload } from "../lib/api";
import { shown } from "../lib/format";
import { type PluginFiles, body, chosen } from "../lib/upload";
import { Question, READ_ONLY, Session } from "./actions";

/** The part of the daemon's answer about a plugin that is needed here. */
interface Judged {
  version: string | null;
  digest: string | null;
  state: string;
  admitting: number | null;
  refusal: string | null;
  disabled_reason: string | null;
  rollout: { kind: string; version: string; digest: string } | null;
}

/** Milliseconds between two requests. */
const PAUSE = 500;
/** Timeout of the decision in milliseconds; the daemon's limit for compilation is lower by default. */
const PATIENCE = 600_000;

export function DropZone({ versions, done }: { versions: ReadonlyMap<string, string | null>; done: () => void }) {
  const { user, notify } = useContext(Session);
  const [files, setFiles] = useState<PluginFiles>();
  const [over, setOver] = useState(false);
  const [checked, setChecked] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const disabled = user?.read_only === true;

  const take = (list: FileList | null | undefined) => {
    setOver(false);
    if (disabled || !list || list.length === 0) return;
    const found = chosen([...list]);
    // Cleared, so that the same files can be chosen again.
    if (input.current) input.current.value = "";
    if (typeof found === "string") notify(shown(found, 500), true);
    else setFiles(found);
  };

  const send = async ({ name, ...rest }: PluginFiles) => {
    const plugin = shown(name, 100);
    const uploaded = await upload(`/v1/plugins/${encodeURIComponent(name)}/files`, body({ name, ...rest }));
    setChecked(plugin);
    // The dialog closes now; another notification shows the outcome.
    void follow(name, uploaded)
      .then(([text, failed]) => notify(text, failed), (error: unknown) => notify(`${plugin}: ${shown(String(error), 500)}`, true))
      .finally(() => {
        setChecked("");
        done();
      });
    return `The files of ${plugin} are in the plugin directory and are being checked.`;
  };

  const version = files && versions.get(files.name);
  return (
    <div
      class={over ? "drop over" : "drop"}
      role="group"
      aria-label="Replace a plugin"
      onDragOver={(event) => {
        event.preventDefault();
        setOver(!disabled);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        take(event.dataTransfer?.files);
      }}
    >
      <label>
        Drop NAME.wasm, with NAME.toml if the manifest changes, or choose files{" "}
        <input
          ref={input}
          type="file"
          multiple
          accept=".wasm,.toml,.sig"
          disabled={disabled}
          title={disabled ? READ_ONLY : undefined}
          onChange={(event) => take(event.currentTarget.files)}
        />
      </label>
      <span role="status">{checked && `${checked}: the new files are being checked…`}</span>
      {files && (
        <Question
          label="Upload"
          question={version ? `Replace ${shown(version, 60)} of ${shown(files.name, 100)}?` : `Add the plugin ${shown(files.name, 100)}?`}
          detail={detail(files)}
          run={() => send(files)}
          done={done}
          close={() => setFiles(undefined)}
        />
      )}
    </div>
  );
}

function detail({ component, manifest, signature }: PluginFiles): string {
  const names = [component, manifest, signature].flatMap((file) => (file ? [`${shown(file.name, 100)} (${size(file.size)})`] : []));
  const grants = manifest ? "What the manifest grants counts from then on." : "The manifest stays as it is.";
  return `${names.join(", ")} will be written to the plugin directory and admitted; what is rejected leaves the old version serving. ${grants}`;
}

function size(bytes: number): string {
  return bytes < 10_000 ? `${bytes} bytes` : `${Math.round(bytes / 1000).toLocaleString("en-GB")} kB`;
}

/** Waits for the daemon's decision; returns a text, and whether it is a failure. */
async function follow(name: string, uploaded: Uploaded): Promise<[string, boolean]> {
  const plugin = shown(name, 100);
  const until = Date.now() + PATIENCE;
  for (;;) {
    const now = await get<Judged>(`/v1/plugins/${encodeURIComponent(name)}`);
    if (now.admitting === null && now.state !== "fetching") return outcome(plugin, uploaded, now);
    if (Date.now() > until) return [`${plugin}: no decision within ${PATIENCE / 1000} s.`, true];
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

function outcome(plugin: string, { digest, ignored }: Uploaded, now: Judged): [string, boolean] {
  const version = shown(now.version ?? "–", 60);
  const rest = now.state === "serving" ? `Version ${version} still serves.` : "No version serves.";
  if (now.refusal !== null) return [`${plugin} was rejected: ${shown(now.refusal, 500)}. ${rest}`, true];
  if (now.rollout && now.rollout.digest === digest) return [`${plugin} ${shown(now.rollout.version, 60)} runs as a ${shown(now.rollout.kind, 20)}.`, false];
  if (now.disabled_reason !== null) return [`${plugin} is disabled: ${shown(now.disabled_reason, 500)}`, true];
  if (ignored || (digest !== null && now.digest !== digest)) return [`${plugin}: the daemon ignores these files, because a rollback or a return has replaced them. ${rest}`, true];
  return [`${plugin} ${version} serves.`, false];
}
