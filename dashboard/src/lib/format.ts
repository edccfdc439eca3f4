/** Formats values for people. Every text from a service is shown as text, never as markup. */

/** Control characters and characters that change the direction of text: they could disguise a text. */
const HIDDEN_CHARACTERS = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** A name or message with hidden characters made visible, cut to `max` characters. */
export function displayText(value: unknown, max = 2000): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" ? value : typeof value === "object" ? JSON.stringify(value) : String(value);
  const truncated = text.length > max ? `${text.slice(0, max)}…` : text;
  return visible(truncated);
}

/** A text with hidden characters made visible, as JSON writes them. */
export function visible(text: string): string {
  return text.replace(HIDDEN_CHARACTERS, (c) =>
    c === "\n" || c === "\t" ? c : `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** `1.5 GB` for megabytes. */
export function megabytes(mb: number): string {
  if (mb >= 1024 * 1024) return `${oneDecimal(mb / 1024 / 1024)} TB`;
  return mb >= 1024 ? `${oneDecimal(mb / 1024)} GB` : `${oneDecimal(mb)} MB`;
}

/** `0.3 of 4 GB`: an amount and a total in the unit of the total. */
export function megabytesOf(used: number, total: number): string {
  const unit = total >= 1024 * 1024 ? 1024 * 1024 : total >= 1024 ? 1024 : 1;
  return `${oneDecimal(used / unit)} of ${megabytes(total)}`;
}

/** At most one decimal. */
export function oneDecimal(value: number): string {
  return (Math.round(value * 10) / 10).toLocaleString("en-GB");
}

export function formatCount(value: number | undefined): string {
  return value === undefined ? "–" : value.toLocaleString("en-GB");
}

/** `3 h 5 min` for seconds. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) return `${s} s`;
  if (s < 600) return `${Math.floor(s / 60)} min ${s % 60} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** The time since a moment: RFC 3339, or seconds since 1970. */
export function elapsedSince(at: string | number | null | undefined, now = Date.now()): string {
  const millis = toMillis(at);
  return millis === undefined ? "" : duration((now - millis) / 1000);
}

/** A moment as a local time, with the date if it is not today. */
export function localTime(at: string | number | null | undefined, now = Date.now()): string {
  const millis = toMillis(at);
  if (millis === undefined) return "";
  const date = new Date(millis);
  const today = new Date(now).toDateString() === date.toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  return today ? clock : `${date.toLocaleDateString("en-CA")} ${clock}`;
}

function toMillis(at: string | number | null | undefined): number | undefined {
  if (at === null || at === undefined || at === "") return undefined;
  const millis = typeof at === "number" ? at * 1000 : Date.parse(at);
  return Number.isFinite(millis) ? millis : undefined;
}

/** `1.2 ms` for microseconds. */
export function micros(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  if (value < 1000) return `${value} µs`;
  return value < 1_000_000 ? `${oneDecimal(value / 1000)} ms` : `${oneDecimal(value / 1_000_000)} s`;
}

/** The first characters of `sha256:…`. */
export function shortDigest(value: string | null | undefined): string {
  return value ? value.replace(/^sha256:/, "").slice(0, 12) : "–";
}
