/** Small components that every page uses. */

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Failure } from "../lib/api";
import { displayText } from "../lib/format";

export type Tone = "good" | "bad" | "warn" | "info" | "dull";

export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** A part of a page with a title. It shows the error of a failed request, and keeps its last content. */
export function Panel(props: {
  title: string;
  aside?: ComponentChildren;
  error?: Failure;
  loading?: boolean;
  children?: ComponentChildren;
  class?: string;
}) {
  return (
    <section class={`panel ${props.class ?? ""}`} aria-label={props.title}>
      <header>
        <h2>{props.title}</h2>
        {props.aside}
      </header>
      {props.error && (
        <p class="failed" role="alert">
          {errorText(props.error)}
        </p>
      )}
      {props.loading ? !props.error && <p class="empty">Loading…</p> : props.children}
    </section>
  );
}

export type PanelError = Failure | undefined;

function errorText(error: Failure): string {
  const text = displayText(error.message, 500);
  if (error.status === 0) return `Request failed: ${text}. Retrying.`;
  return error.status > 0 ? `Error ${error.status}: ${text}` : text;
}

/** A sentence of the daemon, in which commands stand between backticks. */
export function Prose({ text }: { text: string }) {
  return <>{displayText(text).split("`").map((part, at) => (at % 2 === 1 ? <code key={at}>{part}</code> : part))}</>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** Names and their values. */
export function Facts({ facts }: { facts: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A bar with the used share, followed by the offered share. */
export function Bar(props: { label: string; used: number; offered?: number; total: number; text: string }) {
  const percent = (value: number) => (props.total > 0 ? Math.min(100, (100 * value) / props.total) : 0);
  const used = percent(props.used);
  return (
    <div class="bar" role="img" aria-label={`${props.label}: ${props.text}`} title={props.text}>
      <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="8" />
        <rect class={used > 90 ? "used high" : "used"} width={used} height="8" />
        <rect class="offered" x={used} width={Math.min(100 - used, percent(props.offered ?? 0))} height="8" />
      </svg>
      <span aria-hidden="true">{props.text}</span>
    </div>
  );
}

/** A line chart of the last values, with the newest value as text. */
export function Sparkline(props: { label: string; values: number[]; text: string; tone?: Tone }) {
  const { values } = props;
  const maximum = Math.max(...values, 1e-9);
  const step = values.length > 1 ? 120 / (values.length - 1) : 0;
  const points = values.map((value, at) => `${(at * step).toFixed(1)},${(27 - (25 * value) / maximum).toFixed(1)}`);
  return (
    <figure class={`spark ${props.tone ?? "info"}`}>
      <figcaption>
        {props.label} <b>{props.text}</b>
      </figcaption>
      <svg viewBox="0 0 120 28" preserveAspectRatio="none" role="img" aria-label={`${props.label}: ${props.text}`}>
        {points.length > 1 && (
          <>
            <polygon points={`0,28 ${points.join(" ")} 120,28`} />
            <polyline points={points.join(" ")} />
          </>
        )}
      </svg>
    </figure>
  );
}

/** A modal dialog, which keeps the keyboard focus. */
export function Modal(props: { title: string; close: () => void; children: ComponentChildren; wide?: boolean }) {
  const box = useRef<HTMLDialogElement>(null);
  // Before the browser paints, so that a key that is pressed right after reaches the dialog.
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog?.showModal();
    return () => dialog?.close();
  }, []);
  return (
    <dialog ref={box} class={props.wide ? "wide" : ""} aria-label={props.title} onCancel={props.close} onClose={props.close}>
      <h2>{props.title}</h2>
      {props.children}
    </dialog>
  );
}
