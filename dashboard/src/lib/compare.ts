/** What differs between two definitions. */

import { diffLines } from "diff";
import { visible } from "./format";

export interface Line {
  sign: "+" | "-" | " " | "…";
  text: string;
}

/** Unchanged lines that are shown around a change. */
const CONTEXT = 2;
/** Members that the daemon adds to a definition; they are not part of what a person writes. */
const ADDED = new Set([
  "version", "versionInfo", "tasksStaged", "tasksRunning", "tasksHealthy", "tasksUnhealthy", "deployments", "tasks", "lastTaskFailure",
  "failing", "readinessCheckResults", "tasksStats", "taskStats",
]);

/** A definition without what the daemon adds, as text. */
export function definitionText(app: object): string {
  const entries = Object.entries(app).filter(([name]) => !ADDED.has(name));
  // An editor would show marks of direction as what they do; as escapes of JSON they mean the same.
  return visible(JSON.stringify(Object.fromEntries(entries.sort(([a], [b]) => (a < b ? -1 : 1))), null, 2));
}

/** The lines that were removed and added, with a few that stay; empty: nothing differs. */
export function compare(before: string, after: string): Line[] {
  const parts = diffLines(before, after);
  if (parts.every(({ added, removed }) => !added && !removed)) return [];
  return parts.flatMap(({ value, added, removed }, at): Line[] => {
    const lines = value.replace(/\n$/, "").split("\n");
    if (added || removed) return lines.map((text) => ({ sign: added ? "+" : "-", text }));
    const kept = (at > 0 ? CONTEXT : 0) + (at < parts.length - 1 ? CONTEXT : 0);
    const shown = (some: string[]) => some.map((text): Line => ({ sign: " ", text }));
    if (lines.length <= kept + 1) return shown(lines);
    const first = at > 0 ? lines.slice(0, CONTEXT) : [];
    const last = at < parts.length - 1 ? lines.slice(-CONTEXT) : [];
    return [...shown(first), { sign: "…", text: `${lines.length - first.length - last.length} equal lines` }, ...shown(last)];
  });
}
