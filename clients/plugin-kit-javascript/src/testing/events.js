// Cases of `event-filter`: a query, some events, and their decisions.
import { Query } from "../events.js";
import { Refused } from "../plugin.js";
import { CaseError, Fault, flag, isObject, list, oneOf, show, Table, text, textPairs, texts, u64 } from "./forms.js";

export function prepare(value) {
  const given = new Table(value, "case");
  const query = new Query({
    eventTypes: given.take("event-types", texts, []),
    expression: given.take("filter", text),
    principal: given.take("principal", text),
    extensions: given.take("extensions", textPairs, []),
  });
  const events = given
    .take("events", list(event), [])
    .map((it, at) => ({ ...it, sequence: it.sequence ?? BigInt(at + 1) }));
  const expect = given.take("expect", list(decided));
  const refused = given.take("refused", flag, false);
  given.end();
  let expected;
  if (refused) expected = { refused: true };
  else if (expect !== undefined) expected = { expect };
  // The query has to be accepted.
  else if (events.length === 0) expected = { expect: [] };

  const answer = (plugin) => {
    let decide;
    try {
      decide = plugin.open(query);
    } catch (error) {
      if (error instanceof Refused) return { refused: true };
      throw error;
    }
    return { expect: events.map((it, at) => decision(decide(it), at)) };
  };
  return { answer, expected };
}

function event(value, path) {
  const given = new Table(value, path);
  const sequence = given.take("sequence", u64);
  const kind = given.need("kind", text);
  const subject = given.take("subject", text);
  const body = given.take("body", textOrTable, {});
  given.end();
  const members = { eventType: kind, timestamp: "2000-01-01T00:00:00.000Z", ...(isObject(body) ? body : {}) };
  return { sequence, kind, subject, body: typeof body === "string" ? body : JSON.stringify(members) };
}

function textOrTable(value, path) {
  if (typeof value !== "string" && !isObject(value)) {
    throw new CaseError(`${path}: found ${show(value)}, expected a table or a string`);
  }
  return value;
}

function decided(value, path) {
  if (value === "pass" || value === "drop") return value;
  const [key] = oneOf(value, path);
  if (key !== "replace") throw new CaseError(`${path}: unknown variant \`${key}\`, expected pass, drop or replace`);
  return value;
}

function decision(of, at) {
  if (of === "pass" || of === "drop") return of;
  const document = isObject(of) ? JSON.parse(JSON.stringify(of)) : undefined;
  if (!isObject(document)) throw new Fault(`the replacement of event ${at} is not a JSON object`);
  return { replace: document };
}
