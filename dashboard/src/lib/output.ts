/** The text of an output that arrives in pieces. */

/** A UTF-8 character has at most this many bytes after its first one. */
const MAX_CONTINUATION_BYTES = 3;

/** Decodes consecutive pieces of UTF-8. The first piece may begin, and each may end, within a character. */
export class OutputDecoder {
  private readonly decoder = new TextDecoder();
  private isFirst = true;

  decode(piece: Uint8Array): string {
    let start = 0;
    if (this.isFirst) {
      while (start < MAX_CONTINUATION_BYTES && isContinuation(piece[start])) start++;
    }
    this.isFirst &&= piece.length === 0;
    return this.decoder.decode(piece.subarray(start), { stream: true });
  }
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Splits a text into what a search finds, in any case, and the rest. */
export function split(text: string, search: string): { text: string; match: boolean }[] {
  if (search === "") return [{ text, match: false }];
  // Lower case may have another length, as that of `İ`; then only the same case is found.
  const [lower, needle] = text.toLowerCase().length === text.length ? [text.toLowerCase(), search.toLowerCase()] : [text, search];
  const parts: { text: string; match: boolean }[] = [];
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    if (at > from) parts.push({ text: text.slice(from, at), match: false });
    from = at + needle.length;
    parts.push({ text: text.slice(at, from), match: true });
  }
  if (from < text.length) parts.push({ text: text.slice(from), match: false });
  return parts;
}
