// Places tasks by ["attribute", "IS", "value"], and nowhere where maintenance is done.

// What the host asks of every plugin.
export const about = {
  // Without a schema it takes no configuration.
  describe() {
    return { name: "{{name}}", version: "0.1.0", summary: "{{summary}}" };
  },

  configure() {},
};

// The cluster's agents, loaded once and asked about many times.
class AgentSet {
  constructor() {
    this.agents = new Map();
  }

  update(changed, gone) {
    for (const agent of changed) {
      this.agents.set(agent.handle, new Map(agent.attributes.map((it) => [it.name, text(it.value)])));
    }
    for (const handle of gone) this.agents.delete(handle);
  }

  // For each candidate, in order, whether one more instance may go there.
  evaluate(task, candidates) {
    return candidates.map((it) => this.one(task, it));
  }

  // Takes them as the host prefers them: nothing here depends on what runs where already.
  place(task, candidates, count) {
    const fit = candidates.filter((it) => this.one(task, it).tag === "fits");
    return fit.flatMap((it) => Array(Math.min(it.capacity, count)).fill(it.agent)).slice(0, count);
  }

  // Which instances to kill when a task is scaled down, as indices into `placed`: the host chooses.
  selectKills() {
    return [];
  }

  one(task, candidate) {
    const attributes = this.agents.get(candidate.agent) ?? new Map();
    for (const [at, constraint] of task.constraints.entries()) {
      const wanted = understood(constraint);
      if (wanted === undefined || attributes.get(wanted.field) !== wanted.operand) return { tag: "refused", val: at };
    }
    if (attributes.get("maintenance") === "true") {
      // As many as there are constraints: none of them, a rule of this matcher's own.
      return { tag: "refused", val: task.constraints.length };
    }
    return { tag: "fits" };
  }
}

// Field and operand of a constraint; undefined: another kind of constraint.
function understood(constraint) {
  const { tag, val } = constraint;
  return tag === "field" && val.operator === "IS" && val.operand !== undefined ? val : undefined;
}

// An attribute's value as a constraint writes it; undefined: it has several.
function text(value) {
  return value.tag === "text" || value.tag === "scalar" ? String(value.val) : undefined;
}

export const matcher = {
  AgentSet,

  // Asked when a definition is posted: what is wrong with its constraints.
  validate(constraints) {
    return constraints.flatMap((constraint, at) =>
      understood(constraint) ? [] : [{ constraint: at, message: 'expected ["attribute", "IS", "value"]' }],
    );
  },
};
