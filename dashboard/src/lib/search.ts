/** Finds apps, tasks, hosts, jobs, agents, plugins and names by parts of their names. */

export interface Item {
  kind: string;
  name: string;
  /** Further text that is searched and shown, such as a host. */
  detail?: string;
  href: string;
  /** All of it in lower case, once it was searched: there may be 100,000 items, and each letter searches them. */
  text?: string;
}

/** How well an item fits, lower is better; undefined: it does not. Every word must be in it. */
export function rank(item: Item, words: readonly string[]): number | undefined {
  const all = (item.text ??= `${item.name} ${item.detail ?? ""} ${item.kind}`.toLowerCase());
  if (words.length === 0 || !words.every((word) => all.includes(word))) return undefined;
  const name = item.name.toLowerCase();
  const word = words[0] ?? "";
  const last = name.split("/").pop() ?? name;
  if (name === word || last === word) return 0;
  if (last.startsWith(word) || name.startsWith(word)) return 1;
  return name.includes(word) ? 2 : 3;
}

/** Kinds of which there are few come first, so that tasks and names do not hide them. */
const KINDS = ["app", "pod", "agent", "plugin", "job", "name", "task"];

/** The best items for a query, at most `limit`. */
export function search(items: readonly Item[], query: string, limit = 30): Item[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  const buckets: Item[][] = [];
  for (const item of items) {
    const place = rank(item, words);
    if (place === undefined) continue;
    const bucket = (buckets[place * KINDS.length + KINDS.indexOf(item.kind)] ??= []);
    if (bucket.length < limit) bucket.push(item);
  }
  return buckets.flat().slice(0, limit);
}
