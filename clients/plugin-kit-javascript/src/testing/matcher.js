// Cases of `attribute-matcher`: agents, a task's constraints, and the agents that may run the task, on which
// it is placed, or whose instances are killed.
import { Agent, AgentSet, OWN_RULE } from "../matcher.js";
import {
  byBytes,
  CaseError,
  COUNT,
  Fault,
  flag,
  isObject,
  list,
  named,
  pair,
  show,
  Table,
  text,
  textPairs,
  texts,
  U32,
  u64,
} from "./forms.js";

/** The names of a case's agents; their handles are 1, 2, … */
class Names {
  constructor(agents) {
    this.names = agents.map((it) => it.id ?? it.hostname);
  }

  handle(name) {
    // If several agents have this name, the first one.
    const at = this.names.indexOf(name);
    if (at < 0) throw new CaseError(`no agent has the id or hostname ${JSON.stringify(name)}`);
    return at + 1;
  }

  of(handle) {
    return this.names[handle - 1];
  }
}

export function prepare(value) {
  const given = read(value);
  const asked = ["kill", "place"].filter((key) => given[key] !== undefined);
  if (given.validate) asked.push("validate");
  if (asked.length > 1) throw new CaseError("a case has only one of `kill`, `place` and `validate`");
  if (given.agents === undefined && !given.validate) throw new CaseError("`agents` is missing");
  const agents = given.agents ?? [];
  const names = new Names(agents);
  const placed = given.placed.map((it) => names.handle(it));
  const ending = given.ending.map((it) => names.handle(it));
  const { expected, exact } = answered(names, given.expect, asked[0] === "place");
  if (given.kill > placed.length) {
    throw new CaseError(`\`kill\` is at most the number of placed instances, ${placed.length}`);
  }
  const candidates =
    given.candidates?.map((it) => ({ ...it, agent: names.handle(it.agent) })) ??
    agents.map((_, at) => ({ agent: at + 1, capacity: 1 }));
  const usual = given.kill === undefined ? placed.length + 1 : placed.length - given.kill;
  const task = {
    runSpec: given.runSpec,
    instances: given.instances ?? usual,
    constraints: given.constraints,
    placed,
    extensions: ending.length > 0 ? [...given.extensions, ["ending", ending.join(" ")]] : given.extensions,
  };
  const loaded = () => {
    const made = agents.map((it, at) => new Agent({ ...it, handle: at + 1, id: it.id ?? `self-test-${at + 1}` }));
    return new AgentSet(given.homeRegion, made);
  };

  const calls = {
    validate(plugin) {
      const found = plugin.validate(task.constraints).map((it) => it.constraint);
      for (const index of found) {
        if (!(index >= 0 && index < task.constraints.length)) {
          throw new Fault(`an error for constraint ${index} of ${task.constraints.length}`);
        }
      }
      return [...new Set(found)].sort((a, b) => a - b);
    },
    place(plugin) {
      const chosen = [...plugin.place(loaded(), task, candidates, given.place)];
      checkPlaces(chosen, candidates, given.place);
      return chosen.map((it) => names.of(it));
    },
    kill(plugin) {
      const chosen = [...plugin.selectKills(loaded(), task, given.kill)];
      checkKills(chosen, placed.length, given.kill);
      return exact ? chosen : chosen.map((it) => names.of(placed[it])).sort(byBytes);
    },
    evaluate(plugin) {
      const refusals = plugin.evaluate(loaded(), task, candidates);
      const verdicts = checkedVerdicts(refusals, candidates.length, task.constraints.length);
      const found = candidates.map((it, at) => [names.of(it.agent), verdicts[at]]);
      if (exact) return Object.fromEntries(found);
      const fits = found.filter(([, verdict]) => verdict === "fits");
      return fits.map(([name]) => name).sort(byBytes);
    },
  };
  const call = calls[asked[0] ?? "evaluate"];
  return { answer: (plugin) => ({ expect: call(plugin) }), expected };
}

function read(value) {
  const given = new Table(value, "case");
  const found = {
    agents: given.take("agents", list(agent)),
    homeRegion: given.take("home-region", text),
    runSpec: given.take("run-spec", text, "/self-test"),
    constraints: given.take("constraints", list(constraint), []),
    placed: given.take("placed", texts, []),
    ending: given.take("ending", texts, []),
    extensions: given.take("extensions", textPairs, []),
    instances: given.take("instances", COUNT),
    candidates: given.take("candidates", list(candidate)),
    kill: given.take("kill", COUNT),
    place: given.take("place", COUNT),
    validate: given.take("validate", flag, false),
    expect: given.take("expect", expectation),
  };
  given.end();
  return found;
}

/** The expected answer, and whether it is exact. */
function answered(names, expect, inOrder) {
  if (expect === undefined) return { exact: false };
  if (isObject(expect)) {
    for (const name of Object.keys(expect)) names.handle(name);
    return { expected: { expect }, exact: true };
  }
  if (expect.some((it) => typeof it !== "string")) return { expected: { expect }, exact: true };
  for (const name of expect) names.handle(name);
  return { expected: { expect: inOrder ? expect : [...expect].sort(byBytes) }, exact: false };
}

/** Names, indices, or verdicts by candidate. */
function expectation(value, path) {
  if (isObject(value)) {
    for (const [name, verdict] of Object.entries(value)) {
      if (verdict !== "fits") U32(verdict, `${path}.${name}`);
    }
    return value;
  }
  if (Array.isArray(value) && value.every((it) => typeof it === "string")) return value;
  return list(U32)(value, path);
}

function agent(value, path) {
  const given = new Table(value, path);
  const found = {
    id: given.take("id", text),
    hostname: given.need("hostname", text),
    region: given.take("region", text),
    zone: given.take("zone", text),
    attributes: given.take("attributes", named(attribute), []),
    extensions: given.take("extensions", textPairs, []),
  };
  given.end();
  return found;
}

function attribute(value, path) {
  if (typeof value === "string" || typeof value === "number") return value;
  if (Array.isArray(value)) {
    if (value.length > 0 && value.every((it) => typeof it === "string")) return new Set(value);
    return list(pair(u64, u64))(value, path);
  }
  if (isObject(value) && Array.isArray(value.set) && value.set.length === 0) return new Set();
  throw new CaseError(`${path}: found ${show(value)}, expected a string, a number, ranges or a set`);
}

function constraint(value, path) {
  if (typeof value === "string") return value;
  const parts = texts(value, path);
  if (parts.length !== 2 && parts.length !== 3) {
    throw new CaseError(`a constraint has a field, an operator and perhaps an operand, not ${show(parts)}`);
  }
  const [field, operator, operand] = parts;
  return { field, operator, operand };
}

function candidate(value, path) {
  if (typeof value === "string") return { agent: value, capacity: 1 };
  const given = new Table(value, path);
  // Other keys are ignored, as by the host.
  return { agent: given.need("agent", text), capacity: given.need("capacity", COUNT) };
}

function checkedVerdicts(refusals, candidates, constraints) {
  if (refusals.length !== candidates) throw new Fault(`${refusals.length} verdicts on ${candidates} candidates`);
  return refusals.map((it) => {
    if (it === undefined) return "fits";
    const index = it === OWN_RULE ? constraints : it;
    if (!(index >= 0 && index <= constraints)) throw new Fault(`refused by constraint ${index} of ${constraints}`);
    return index;
  });
}

function checkPlaces(chosen, candidates, count) {
  if (chosen.length > count) throw new Fault(`${chosen.length} places for ${count} instances`);
  const capacity = new Map();
  for (const it of candidates) capacity.set(it.agent, (capacity.get(it.agent) ?? 0) + it.capacity);
  for (const handle of chosen) {
    if (!capacity.has(handle)) throw new Fault(`agent ${handle} was chosen but is not a candidate`);
    if (capacity.get(handle) === 0) throw new Fault(`agent ${handle} was chosen more often than its capacity`);
    capacity.set(handle, capacity.get(handle) - 1);
  }
}

function checkKills(chosen, placed, count) {
  if (chosen.length > count) throw new Fault(`${chosen.length} instances to kill instead of ${count}`);
  for (const index of chosen) {
    if (!(index >= 0 && index < placed)) throw new Fault(`instance ${index} of ${placed} is to be killed`);
  }
  if (new Set(chosen).size !== chosen.length) throw new Fault("an instance is to be killed twice");
}
