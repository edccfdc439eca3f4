// Files of cases, and the configuration in a manifest.
import { parse, TomlDate } from "smol-toml";

/** Cases of one file. */
const MAX_CASES = 1000;

export class CasesError extends Error {}

/** Parses the cases in a text; the file's name determines whether it is TOML or JSON. */
export function casesIn(content, path) {
  return at(path, () => {
    const cases = /\.json$/.test(path) ? fromJson(content) : fromToml(content, path);
    if (cases.length < 1 || cases.length > MAX_CASES) {
      throw new CasesError(`${cases.length} cases; expected 1 to ${MAX_CASES}`);
    }
    for (const it of cases) {
      if (!isTable(it)) throw new CasesError(`expected an object for each case, found ${JSON.stringify(it)}`);
    }
    return cases;
  });
}

/** The `[config]` in a manifest's text. */
export function configIn(content, path) {
  return at(path, () => {
    const config = plain(parse(content).config ?? {});
    if (!isTable(config)) throw new CasesError("`config` is not a table");
    return config;
  });
}

/** Adds the name of the file to errors. */
function at(path, read) {
  try {
    return read();
  } catch (error) {
    throw new CasesError(`${path}: ${error.message}`);
  }
}

function fromToml(content, path) {
  if (!/\.toml$/.test(path)) throw new CasesError("expected NAME.toml or NAME.json");
  const { case: cases, ...others } = plain(parse(content));
  const keys = Object.keys(others).map((key) => `\`${key}\``);
  if (keys.length > 0 || !Array.isArray(cases)) {
    throw new CasesError(`expected [[case]] tables and nothing else, found ${keys.join(", ") || "none of them"}`);
  }
  return cases;
}

function fromJson(content) {
  const cases = JSON.parse(content);
  if (!Array.isArray(cases)) throw new CasesError("expected a list of objects, found another document");
  return cases;
}

const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** A TOML value as JSON; dates become texts. */
function plain(value) {
  if (value instanceof TomlDate) return value.toISOString();
  if (Array.isArray(value)) return value.map(plain);
  if (isTable(value)) return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new CasesError(`found ${value}; expected a finite number`);
  }
  return value;
}
