/** Buttons that change something, with a confirmation before and a notification after the change. */

import type { ComponentChildren } from "preact";
import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import { Failure } from "../lib/api";
import { displayText } from "../lib/format";
import { Modal } from "./basics";

export interface User {
  user: string | null;
  read_only: boolean;
}

export interface Notice {
  id: number;
  text: string;
  failed: boolean;
}

export const Session = createContext<{
  user: User | undefined;
  notify: (text: string, failed?: boolean) => void;
}>({ user: undefined, notify: () => undefined });

export const READ_ONLY = "This user may only read.";

interface Change {
  label: string;
  /** The effect of the change, as a question. */
  question: string;
  /** What the change affects; a function finds it out when the question is asked. */
  detail?: string | (() => Promise<string>);
  /** A name that must be typed, for changes that cannot be undone. */
  confirmName?: string;
  danger?: boolean;
  /** An input for a number. */
  number?: { label: string; value: number; max: number };
  /** Performs the change; returns the notification. */
  run: (number: number) => Promise<string>;
  done?: () => void;
}

export function Action(props: Change & { disabled?: string; children?: ComponentChildren }) {
  const { user } = useContext(Session);
  const [open, setOpen] = useState(false);
  const reason = user?.read_only ? READ_ONLY : props.disabled;
  return (
    <>
      <button
        type="button"
        class={props.danger ? "danger" : ""}
        disabled={reason !== undefined}
        title={reason}
        onClick={() => setOpen(true)}
      >
        {props.children ?? props.label}
      </button>
      {open && <Question {...props} close={() => setOpen(false)} />}
    </>
  );
}

/** A dialog that asks for a confirmation, performs the change, shows a notification, and closes. */
export function Question(props: Change & { close: () => void }) {
  const { notify } = useContext(Session);
  const [busy, setBusy] = useState(false);
  const [number, setNumber] = useState(props.number?.value ?? 0);
  const [typed, setTyped] = useState("");
  const [detail, setDetail] = useState(typeof props.detail === "string" ? props.detail : "");
  useEffect(() => {
    if (typeof props.detail === "function") {
      props.detail().then(setDetail, (error: unknown) => setDetail(`What it affects is not known: ${displayText(error, 300)}`));
    }
  }, []);
  const { confirmName } = props;

  const confirm = async () => {
    setBusy(true);
    try {
      notify(await props.run(number));
      props.done?.();
    } catch (error) {
      const status = error instanceof Failure && error.status > 0 ? ` (${error.status})` : "";
      notify(`${props.label} failed${status}: ${displayText(error instanceof Error ? error.message : error, 500)}`, true);
    }
    props.close();
  };

  return (
    <Modal title={props.question} close={props.close}>
      {detail && <p>{detail}</p>}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void confirm();
        }}
      >
        {props.number && (
          <label>
            {props.number.label}
            <input
              type="number"
              min={0}
              max={props.number.max}
              required
              value={number}
              onInput={(event) => setNumber(event.currentTarget.valueAsNumber)}
            />
          </label>
        )}
        {confirmName !== undefined && (
          <label>
            Type {displayText(confirmName, 200)}
            <input type="text" required autocomplete="off" spellcheck={false} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} />
          </label>
        )}
        <menu>
          <button type="button" onClick={props.close}>
            Cancel
          </button>
          <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy || (confirmName !== undefined && typed !== confirmName)}>
            {busy ? "Working…" : props.label}
          </button>
        </menu>
      </form>
    </Modal>
  );
}
