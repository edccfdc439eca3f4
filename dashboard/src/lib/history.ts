/** The document of `/v1/history`: the last hour of some series. */

import { megabytes, oneDecimal } from "./format";

export interface History {
  /** The time of the first values, in seconds since 1970. */
  start: number;
  /** Seconds between two values. */
  step: number;
  series: Partial<Record<string, { unit: string; values: (number | null)[] }>>;
}

/** The times of the values, in seconds. */
export function times(history: History): number[] {
  const length = Math.max(0, ...Object.values(history.series).map((one) => one?.values.length ?? 0));
  return Array.from({ length }, (_, at) => history.start + at * history.step);
}

/** The newest value, if the last step has one. */
export function newest(history: History, name: string): number | null {
  return history.series[name]?.values.at(-1) ?? null;
}

const SUFFIXES: Partial<Record<string, string>> = { "1/s": "/s", "1/min": "/min", cpus: " CPUs" };

/** A value with its unit, as the axes and the legend of a plot show it. */
export function withUnit(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined) return "–";
  if (unit === "bytes") return megabytes(value / 1024 / 1024);
  if (unit === "MB") return megabytes(value);
  if (unit === "s") return value < 1 ? `${significant(value * 1000)} ms` : `${oneDecimal(value)} s`;
  return `${significant(value)}${SUFFIXES[unit] ?? ""}`;
}

function significant(value: number): string {
  if (value === 0 || Math.abs(value) >= 10) return oneDecimal(value);
  return Number(value.toPrecision(2)).toLocaleString("en-GB", { maximumFractionDigits: 4 });
}
