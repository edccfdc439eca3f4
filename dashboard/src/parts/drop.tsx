/** Uploads files that replace a plugin, after a confirmation, and waits for the daemon's decision. */

import { useContext, useRef, useState } from "preact/hooks";
import { type Uploaded, get, upload } from "../lib/api";
import { displayText } from "../lib/format";
import { type PluginFiles, requestBody, toPluginFiles } from "../lib/upload";
import { Question, READ_ONLY, Session } from "./actions";

/** The part of the daemon's answer about a plugin that is needed here. */
interface PluginStatus {
  version: string | null;
  digest: string | null;
  state: string;
  admitting: number | null;
  refusal: string | null;
  disabled_reason: string | null;
  rollout: { kind: string; version: string; digest: string } | null;
}

/** Milliseconds between two requests. */
const POLL_INTERVAL = 500;
/** Timeout of the decision in milliseconds; the daemon's limit for compilation is lower by default. */
const DECISION_TIMEOUT = 600_000;

export function DropZone({ versions, done }: { versions: ReadonlyMap<string, string | null>; done: () => void }) {
  const { user, notify } = useContext(Session);
  const [files, setFiles] = useState<PluginFiles>();
  const [dragging, setDragging] = useState(false);
  const [checked, setChecked] = useState("");
  const input = useRef<HTMLInputElement>(null);
  const disabled = user?.read_only === true;

  const selectFiles = (list: FileList | null | undefined) => {
    setDragging(false);
    if (disabled || !list || list.length === 0) return;
    const selection = toPluginFiles([...list]);
    // Cleared, so that the same files can be chosen again.
    if (input.current) input.current.value = "";
    if (typeof selection === "string") notify(displayText(selection, 500), true);
    else setFiles(selection);
  };

  const send = async ({ name, ...rest }: PluginFiles) => {
    const plugin = displayText(name, 100);
    const uploaded = await upload(`/v1/plugins/${encodeURIComponent(name)}/files`, requestBody({ name, ...rest }));
    setChecked(plugin);
    // The dialog closes now; another notification shows the outcome.
    void waitForDecision(name, uploaded)
      .then(([text, failed]) => notify(text, failed), (error: unknown) => notify(`${plugin}: ${displayText(String(error), 500)}`, true))
      .finally(() => {
        setChecked("");
        done();
      });
    return `The files of ${plugin} are in the plugin directory and are being checked.`;
  };

  const version = files && versions.get(files.name);
  return (
    <div
      class={dragging ? "drop over" : "drop"}
      role="group"
      aria-label="Replace a plugin"
      onDragOver={(event) => {
        event.preventDefault();
        setDragging(!disabled);
      }}
      onDragLeave={() => setDragging(false)}
      onDrop={(event) => {
        event.preventDefault();
        selectFiles(event.dataTransfer?.files);
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
          onChange={(event) => selectFiles(event.currentTarget.files)}
        />
      </label>
      <span role="status">{checked && `${checked}: the new files are being checked…`}</span>
      {files && (
        <Question
          label="Upload"
          question={version ? `Replace ${displayText(version, 60)} of ${displayText(files.name, 100)}?` : `Add the plugin ${displayText(files.name, 100)}?`}
          detail={uploadDetail(files)}
          run={() => send(files)}
          done={done}
          close={() => setFiles(undefined)}
        />
      )}
    </div>
  );
}

function uploadDetail({ component, manifest, signature }: PluginFiles): string {
  const names = [component, manifest, signature].flatMap((file) => (file ? [`${displayText(file.name, 100)} (${sizeText(file.size)})`] : []));
  const grants = manifest ? "The grants of the new manifest apply after admission." : "The manifest is unchanged.";
  return `${names.join(", ")} will be written to the plugin directory and admitted; if they are rejected, the old version keeps serving. ${grants}`;
}

function sizeText(bytes: number): string {
  return bytes < 10_000 ? `${bytes} bytes` : `${Math.round(bytes / 1000).toLocaleString("en-GB")} kB`;
}

/** Waits for the daemon's decision; returns a text, and whether it is a failure. */
async function waitForDecision(name: string, uploaded: Uploaded): Promise<[string, boolean]> {
  const plugin = displayText(name, 100);
  const deadline = Date.now() + DECISION_TIMEOUT;
  for (;;) {
    const status = await get<PluginStatus>(`/v1/plugins/${encodeURIComponent(name)}`);
    if (status.admitting === null && status.state !== "fetching") return decisionText(plugin, uploaded, status);
    if (Date.now() > deadline) return [`${plugin}: no decision within ${DECISION_TIMEOUT / 1000} s.`, true];
    await new Promise((resolve) => setTimeout(resolve, POLL_INTERVAL));
  }
}

function decisionText(plugin: string, { digest, ignored }: Uploaded, status: PluginStatus): [string, boolean] {
  const version = displayText(status.version ?? "–", 60);
  const servingText = status.state === "serving" ? `Version ${version} still serves.` : "No version serves.";
  if (status.refusal !== null) return [`${plugin} was rejected: ${displayText(status.refusal, 500)}. ${servingText}`, true];
  if (status.rollout && status.rollout.digest === digest) return [`${plugin} ${displayText(status.rollout.version, 60)} runs as a ${displayText(status.rollout.kind, 20)}.`, false];
  if (status.disabled_reason !== null) return [`${plugin} is disabled: ${displayText(status.disabled_reason, 500)}`, true];
  if (ignored || (digest !== null && status.digest !== digest)) return [`${plugin}: the daemon ignores these files, because a rollback or an abort has replaced them. ${servingText}`, true];
  return [`${plugin} ${version} serves.`, false];
}
