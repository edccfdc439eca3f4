/** Buttons that change something: they ask first and say what happened. */

import type { ComponentChildren } from "preact";
import { createContext } from "preact";
import { useContext, useState } from "preact/hooks";
import { Failure } from "../lib/api";
import { shown } from "../lib/format";
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

export function Action(props: {
  label: string;
  /** What will happen, as a question. */
  question: string;
  detail?: string;
  danger?: boolean;
  /** A number to ask for. */
  number?: { label: string; value: number; max: number };
  /** Makes the change; returns what happened. */
  run: (number: number) => Promise<string>;
  done?: () => void;
  disabled?: string;
  children?: ComponentChildren;
}) {
  const { user, notify } = useContext(Session);
  const [open, setOpen] = useState(false);
  const [busy, setBusy] = useState(false);
  const [number, setNumber] = useState(props.number?.value ?? 0);
  const reason = user?.read_only ? READ_ONLY : props.disabled;

  const confirm = async () => {
    setBusy(true);
    try {
      notify(await props.run(number));
      props.done?.();
    } catch (error) {
      const status = error instanceof Failure && error.status > 0 ? ` (${error.status})` : "";
      notify(`${props.label} failed${status}: ${shown(error instanceof Error ? error.message : error, 500)}`, true);
    }
    setBusy(false);
    setOpen(false);
  };

  return (
    <>
      <button
        type="button"
        class={props.danger ? "danger" : ""}
        disabled={reason !== undefined}
        title={reason}
        onClick={() => {
          setNumber(props.number?.value ?? 0);
          setOpen(true);
        }}
      >
        {props.children ?? props.label}
      </button>
      {open && (
        <Modal title={props.question} close={() => setOpen(false)}>
          {props.detail && <p>{props.detail}</p>}
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
            <menu>
              <button type="button" onClick={() => setOpen(false)}>
                Cancel
              </button>
              <button type="submit" class={props.danger ? "danger" : "primary"} disabled={busy}>
                {busy ? "Working…" : props.label}
              </button>
            </menu>
          </form>
        </Modal>
      )}
    </>
  );
}
