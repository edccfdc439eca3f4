// Functions for the cases of all worlds: strict parsing, and the comparison of answers.

/** The mask that replaces a secret in recorded calls. */
const MASK = "*".repeat(8);

/** A mistake in a case. */
export class CaseError extends Error {}

/** The plugin violated the interface, or its attempt does not fit the case. */
export class Fault extends Error {}

/** The keys of a case, read one by one; `end` rejects the others. */
export class Table {
  constructor(value, path) {
    this.left = new Map(Object.entries(table(value, path)));
    this.known = [];
    this.path = path;
  }

  /** Returns the value of a key that may be missing. */
  take(key, read, missing = undefined) {
    this.known.push(key);
    if (!this.left.has(key)) return missing;
    const value = this.left.get(key);
    this.left.delete(key);
    return read(value, `${this.path}.${key}`);
  }

  need(key, read) {
    if (!this.left.has(key)) throw new CaseError(`${this.path}: missing field \`${key}\``);
    return this.take(key, read);
  }

  end() {
    for (const key of this.left.keys()) {
      const known = this.known.map((it) => `\`${it}\``).join(", ");
      throw new CaseError(`${this.path}: unknown field \`${key}\`, expected ${known}`);
    }
  }
}

function wrong(value, path, expected) {
  return new CaseError(`${path}: found ${show(value)}, expected ${expected}`);
}

export function table(value, path) {
  if (!isObject(value)) throw wrong(value, path, "a table");
  return value;
}

/** Key and value of a table with one key. */
export function oneOf(value, path) {
  const entries = isObject(value) ? Object.entries(value) : [];
  if (entries.length !== 1) throw wrong(value, path, "a table with one key");
  return entries[0];
}

export function text(value, path) {
  if (typeof value !== "string") throw wrong(value, path, "a string");
  return value;
}

export function flag(value, path) {
  if (typeof value !== "boolean") throw wrong(value, path, "true or false");
  return value;
}

/** An integer within these bounds. */
export const integer = (least, most) => (value, path) => {
  if (!Number.isInteger(value) || value < least || value > most) {
    throw wrong(value, path, `an integer from ${least} to ${most}`);
  }
  return value;
};

export const U8 = integer(0, 2 ** 8 - 1);
export const U16 = integer(0, 2 ** 16 - 1);
export const U32 = integer(0, 2 ** 32 - 1);
export const I32 = integer(-(2 ** 31), 2 ** 31 - 1);
export const COUNT = integer(1, 2 ** 32 - 1);

/** An integer of 64 bits, a bigint as in the interface. */
export function u64(value, path) {
  if (typeof value !== "bigint" && !Number.isInteger(value)) throw wrong(value, path, "an integer");
  const found = BigInt(value);
  if (found < 0n || found >= 2n ** 64n) throw wrong(value, path, "an integer of 64 bits, at least 0");
  return found;
}

export const list = (read) => (value, path) => {
  if (!Array.isArray(value)) throw wrong(value, path, "a list");
  return value.map((item, index) => read(item, `${path}[${index}]`));
};

/** A list of two. */
export const pair = (first, second) => (value, path) => {
  if (!Array.isArray(value) || value.length !== 2) throw wrong(value, path, "two values");
  return [first(value[0], path), second(value[1], path)];
};

export const texts = list(text);
export const textPairs = list(pair(text, text));

/** Named values: a table, in the order of its keys, or a list of pairs. */
export const named = (read) => (value, path) => {
  if (isObject(value)) return Object.keys(value).sort(byBytes).map((key) => [key, read(value[key], `${path}.${key}`)]);
  return list(pair(text, read))(value, path);
};

/** Compares texts by their UTF-8 bytes, like the host. */
export function byBytes(one, other) {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

/** Bytes: a text, or `{ hex = "…" }`. */
export function data(value, path) {
  if (typeof value === "string") return new TextEncoder().encode(value);
  if (!isObject(value) || Object.keys(value).join() !== "hex") throw wrong(value, path, "a string or { hex = … }");
  const digits = text(value.hex, `${path}.hex`);
  if (!/^([0-9a-fA-F]{2})*$/.test(digits)) {
    throw new CaseError(`\`hex\` is ${JSON.stringify(digits)}; expected two hexadecimal digits for each byte`);
  }
  return Uint8Array.from(Buffer.from(digits, "hex"));
}

/** Bytes in the form of a case. */
export function written(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return { hex: Buffer.from(bytes).toString("hex") };
  }
}

/** Removes members that are undefined. */
export const present = (value) => Object.fromEntries(Object.entries(value).filter(([, it]) => it !== undefined));

/** Whether two JSON values are equal. */
export function same(found, expected) {
  if (Array.isArray(expected)) {
    return (
      Array.isArray(found) && found.length === expected.length && expected.every((it, index) => same(found[index], it))
    );
  }
  if (isObject(expected)) {
    const keys = Object.keys(expected);
    return (
      isObject(found) &&
      Object.keys(found).length === keys.length &&
      keys.every((key) => Object.hasOwn(found, key) && same(found[key], expected[key]))
    );
  }
  return found === expected;
}

/** Whether a value equals the recorded one, in which a mask stands for any text. */
export function sameButForMasks(recorded, found) {
  if (recorded === MASK) return true;
  if (typeof recorded === "string" && recorded.includes(MASK)) {
    const parts = recorded.split(MASK).map((it) => it.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
    return typeof found === "string" && new RegExp(`^${parts.join("[^]*")}$`).test(found);
  }
  if (Array.isArray(recorded)) {
    return (
      Array.isArray(found) &&
      found.length === recorded.length &&
      recorded.every((it, index) => sameButForMasks(it, found[index]))
    );
  }
  if (isObject(recorded)) {
    const keys = Object.keys(recorded);
    return (
      isObject(found) &&
      Object.keys(found).length === keys.length &&
      keys.every((key) => Object.hasOwn(found, key) && sameButForMasks(recorded[key], found[key]))
    );
  }
  return same(found, recorded);
}

/** A value in a message. */
export function show(value) {
  const found = JSON.stringify(value, (_, it) => (typeof it === "bigint" ? String(it) : it)) ?? String(value);
  return found.length <= 200 ? found : `${found.slice(0, 200)} ...`;
}

export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
