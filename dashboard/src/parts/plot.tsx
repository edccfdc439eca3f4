/** Plots over the last hour, from `/v1/history`: axes, units, and the values under the pointer. */

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { get } from "../lib/api";
import { type History, newest, times, withUnit } from "../lib/history";
import { useLive } from "../lib/live";

export interface Line {
  /** Its name in the history. */
  name: string;
  label: string;
  /** The colour, as a variable of the style sheet. */
  colour: string;
  dashed?: boolean;
}

const HEIGHT = 140;
/** The least time, in seconds, that an axis covers: a daemon that has just started has few values. */
const LEAST_TIME = 600;
/** Distances between the lines of an axis of sizes. */
const BINARY = Array.from({ length: 50 }, (_, power) => 2 ** power);

export function useHistory() {
  return useLive("history", (signal) => get<History>("/v1/history", signal), 10_000);
}

/** A change of colours, by the button or by the system: a canvas does not follow the style sheet. */
function useColours(): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    const changed = () => setCount((old) => old + 1);
    const observer = new MutationObserver(changed);
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const system = matchMedia("(prefers-color-scheme: dark)");
    system.addEventListener("change", changed);
    return () => {
      observer.disconnect();
      system.removeEventListener("change", changed);
    };
  }, []);
  return count;
}

export function Plot({ title, history, lines }: { title: string; history: History; lines: Line[] }) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | undefined>(undefined);
  const [hover, setHover] = useState<number | null>(null);
  const colours = useColours();
  const present = lines.filter(({ name }) => history.series[name]?.values.some((value) => value !== null));
  const unit = history.series[lines[0]?.name ?? ""]?.unit ?? "";
  const key = present.map(({ name }) => name).join();
  const at = times(history);
  const data: uPlot.AlignedData = [at, ...present.map(({ name }) => history.series[name]?.values ?? [])];
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const element = box.current;
    if (!element || !key) return;
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, font: "11px system-ui, sans-serif" };
    const made = new uPlot(
      {
        width: Math.max(120, element.clientWidth),
        height: HEIGHT,
        legend: { show: false },
        cursor: { y: false, drag: { x: false, y: false }, points: { size: 6 } },
        scales: { x: { range: (_, min, max) => [Math.min(min, max - LEAST_TIME), max] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] } },
        axes: [
          { ...axis, size: 30, values: (_, splits) => splits.map((one) => new Date(one * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" })) },
          { ...axis, size: 74, incrs: unit === "MB" || unit === "bytes" ? BINARY : undefined, values: (_, splits) => splits.map((one) => withUnit(one, unit)) },
        ],
        series: [
          {},
          ...present.map(({ label, colour: name, dashed }): uPlot.Series => ({
            label, stroke: colour(name), width: 1.5, dash: dashed ? [4, 4] : undefined, points: { show: false },
            fill: dashed ? undefined : `${colour(name)}1c`,
          })),
        ],
        hooks: { setCursor: [({ cursor }) => setHover(cursor.idx ?? null)] },
      },
      latest.current,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(120, element.clientWidth), height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [key, unit, colours]);
  useEffect(() => plot.current?.setData(data), [history]);

  const moment = hover === null ? undefined : at[hover];
  const shown = (name: string) => {
    const series = history.series[name];
    return withUnit(hover === null ? newest(history, name) : series?.values[hover], series?.unit ?? unit);
  };
  const summary = lines.map(({ name, label }) => `${label} ${withUnit(newest(history, name), unit)}`).join(", ");
  return (
    <figure class="plot" aria-label={title}>
      <figcaption>
        <b>{title}</b>
        <small>{moment === undefined ? "" : new Date(moment * 1000).toLocaleTimeString("en-GB")}</small>
      </figcaption>
      <div ref={box} role="img" aria-label={`${title}, the last hour; now: ${summary}`} />
      {!key && <p class="empty">No values yet.</p>}
      <ul class="legend">
        {lines.map(({ name, label, colour }) => (
          <li key={name}>
            <i style={{ background: `var(${colour})` }} /> {label} <b>{shown(name)}</b>
          </li>
        ))}
      </ul>
    </figure>
  );
}
