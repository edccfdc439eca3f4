/** Parses the metrics of `/metrics` that are plotted. */

export interface Sample {
  labels: Record<string, string>;
  value: number;
}

/** The samples of one metric, by its full name. */
export function samples(text: string, name: string): Sample[] {
  const result: Sample[] = [];
  for (const line of text.split("\n")) {
    if (!line.startsWith(name)) continue;
    const match = /^([A-Za-z0-9_:]+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)/.exec(line);
    if (!match || match[1] !== name) continue;
    const labels: Record<string, string> = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/([A-Za-z0-9_]+)="((?:[^"\\]|\\.)*)"/g)) {
      if (key) labels[key] = (value ?? "").replace(/\\(.)/g, (_, c: string) => (c === "n" ? "\n" : c));
    }
    result.push({ labels, value: Number(match[3]) });
  }
  return result;
}

export function sum(list: Sample[]): number {
  return list.reduce((total, { value }) => total + value, 0);
}

/** The last values of a metric, or the rates per second of a counter. */
export class Series {
  readonly values: number[] = [];
  private last: { at: number; value: number } | undefined;

  constructor(private readonly length = 90) {}

  value(value: number): void {
    this.values.push(value);
    if (this.values.length > this.length) this.values.shift();
  }

  /** Adds the rate since the last reading of a counter. A counter that decreased was reset by a restart. */
  counter(value: number, at: number): void {
    const last = this.last;
    this.last = { at, value };
    if (!last || at <= last.at) return;
    const increase = value < last.value ? value : value - last.value;
    this.value(increase / ((at - last.at) / 1000));
  }
}
