// Spreads a task's instances over racks: the next instance goes to a rack with the fewest.

// JSON Schema 2020-12 of the manifest's [config].
const SCHEMA = {
  type: "object",
  properties: { over: { type: "string", minLength: 1 } },
  required: ["over"],
  additionalProperties: false,
};

let over = "";

// The interface that every plugin exports.
export const about = {
  describe() {
    return {
      name: "spread",
      version: "0.1.0",
      summary: "spreads a task's instances over racks",
      configSchema: JSON.stringify(SCHEMA),
    };
  },

  // Called once for every instance. The document matches the schema.
  configure(config) {
    over = JSON.parse(config).over;
  },
};

// The cluster's agents. They are loaded once and used by many calls.
class AgentSet {
  constructor() {
    this.agents = new Map();
  }

  update(changed, gone) {
    for (const agent of changed) {
      const attributes = new Map(agent.attributes.map((it) => [it.name, text(it.value)]));
      // Agents without the attribute form one group.
      const group = attributes.get(over) ?? "";
      this.agents.set(agent.handle, { hostname: agent.hostname, attributes, group });
    }
    for (const handle of gone) this.agents.delete(handle);
  }

  // For each candidate, in order, whether one more instance may go there.
  evaluate(task, candidates) {
    const rejections = candidates.map((it) => this.refusal(task, it));
    const open = candidates.filter((_, at) => rejections[at] === undefined);
    const counts = this.counts(task, open);
    const fewest = Math.min(...counts.values());
    return candidates.map((it, at) => {
      if (rejections[at] !== undefined) return { tag: "refused", val: rejections[at] };
      // An index after the last constraint stands for a rule of the matcher itself.
      if (counts.get(this.group(it)) > fewest) return { tag: "refused", val: task.constraints.length };
      return { tag: "fits" };
    });
  }

  // Chooses agents as if the instances were placed one after the other.
  place(task, candidates, count) {
    const open = candidates.filter((it) => this.refusal(task, it) === undefined).map((it) => ({ ...it }));
    const counts = this.counts(task, open);
    const chosen = [];
    while (chosen.length < count) {
      const left = open.filter((it) => it.capacity > 0);
      if (left.length === 0) break;
      const best = left.reduce((a, b) => (counts.get(this.group(b)) < counts.get(this.group(a)) ? b : a));
      best.capacity -= 1;
      counts.set(this.group(best), counts.get(this.group(best)) + 1);
      chosen.push(best.agent);
    }
    return chosen;
  }

  // Which instances to kill when the task is scaled down, as indices into `placed`: from the group
  // that has the most.
  selectKills(task, count) {
    const left = task.placed.map((handle, index) => ({ index, group: this.agents.get(handle)?.group ?? "" }));
    const counts = new Map();
    for (const { group } of left) counts.set(group, (counts.get(group) ?? 0) + 1);
    const chosen = [];
    while (chosen.length < count && left.length > 0) {
      const most = left.reduce((a, b) => (counts.get(b.group) > counts.get(a.group) ? b : a));
      left.splice(left.indexOf(most), 1);
      counts.set(most.group, counts.get(most.group) - 1);
      chosen.push(most.index);
    }
    return chosen;
  }

  // Index of the first constraint that a candidate does not satisfy; undefined if it satisfies all.
  refusal(task, candidate) {
    const agent = this.agents.get(candidate.agent);
    const at = task.constraints.findIndex((constraint) => !meets(agent, constraint));
    return at < 0 ? undefined : at;
  }

  group(candidate) {
    return this.agents.get(candidate.agent)?.group ?? "";
  }

  // Instances in each group that has a candidate.
  counts(task, candidates) {
    const counts = new Map(candidates.map((it) => [this.group(it), 0]));
    for (const handle of task.placed) {
      const group = this.agents.get(handle)?.group ?? "";
      if (counts.has(group)) counts.set(group, counts.get(group) + 1);
    }
    return counts;
  }
}

// `["rack", "IS", "r1"]`, and `["@hostname", "LIKE", "db.*"]` for patterns.
function meets(agent, { tag, val }) {
  if (agent === undefined || tag !== "field") return false;
  const found = val.field === "@hostname" ? agent.hostname : agent.attributes.get(val.field);
  if (found === undefined) return false;
  if (val.operator === "IS") return found === val.operand;
  return val.operator === "LIKE" && pattern(val.operand)?.test(found) === true;
}

// A pattern has to match the whole value; undefined if it is not a valid pattern.
function pattern(text) {
  try {
    return new RegExp(`^(?:${text ?? ""})$`);
  } catch {
    return undefined;
  }
}

// An attribute's value in the form of a constraint; undefined for ranges and sets.
function text(value) {
  return value.tag === "text" || value.tag === "scalar" ? String(value.val) : undefined;
}

export const matcher = {
  AgentSet,

  // Called when a definition is posted. Returns the errors in its constraints.
  validate(constraints) {
    return constraints.flatMap(({ tag, val }, at) => {
      const known = tag === "field" && (val.operator === "IS" || val.operator === "LIKE");
      if (known && pattern(val.operand) !== undefined) return [];
      return [{ constraint: at, message: "expected IS with a value, or LIKE with a pattern" }];
    });
  },
};
