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
