// Cases of `bootstrap-handler`: a container's script, and the prepared one.
import { createHash } from "node:crypto";
import { Refused } from "../plugin.js";
import {
  CaseError,
  data,
  flag,
  isObject,
  list,
  named,
  pair,
  present,
  show,
  Table,
  table,
  text,
  textPairs,
  texts,
  U16,
  U32,
  written,
} from "./forms.js";

export function prepare(value) {
  const given = new Table(value, "case");
  const script = given.need("script", data);
  const context = {
    role: given.need("role", role),
    framework: given.take("framework", text, "fw"),
    task: given.take("task", text, "self-test.1"),
    number: given.take("number", U32, 0),
    host: given.take("host", text, "localhost"),
    attributes: given.take("attributes", named(text), []),
    image: given.take("image", text, "self-test"),
    ports: given.take("ports", list(pair(U16, U16)), []),
    source: given.take("source", text, "self-test"),
    digest: createHash("sha256").update(script).digest("hex"),
    environment: given.take("environment", named(text), []),
    arguments: given.take("arguments", texts, []),
    extensions: given.take("extensions", textPairs, []),
  };
  const expect = given.take("expect", prepared, {});
  const refused = given.take("refused", refusal, false);
  given.end();
  const expected = refused === false ? { expect } : { refused };

  const answer = (plugin) => {
    let found;
    try {
      found = plugin.prepare(structuredClone(context), Uint8Array.from(script));
    } catch (error) {
      if (error instanceof Refused) return { refused: isObject(refused) ? { retry: error.retry } : true };
      throw error;
    }
    const all = {
      script: written(found.script),
      environment: Object.fromEntries(found.environment),
      arguments: [...found.arguments],
    };
    // Omitted keys are not compared.
    const wanted = Object.entries(all).filter(([key]) => refused !== false || key in expect);
    return { expect: Object.fromEntries(wanted) };
  };
  return { answer, expected };
}

function role(value, path) {
  if (!["server", "agent", "datastore"].includes(value)) {
    throw new CaseError(`${path}: found ${show(value)}, expected server, agent or datastore`);
  }
  return value;
}

function prepared(value, path) {
  const given = new Table(value, path);
  const script = given.take("script", data);
  const environment = given.take("environment", table);
  const found = present({
    script: script && written(script),
    environment,
    arguments: given.take("arguments", texts),
  });
  given.end();
  for (const [name, it] of Object.entries(environment ?? {})) text(it, `${path}.environment.${name}`);
  return found;
}

function refusal(value, path) {
  if (!isObject(value)) return flag(value, path);
  const given = new Table(value, path);
  given.need("retry", flag);
  given.end();
  return value;
}
