// `attribute-matcher`: decides which agents may run a task.
import { described, InvalidConfig, Plugin } from "./plugin.js";

export { InvalidConfig };

/** A rejection by a rule of the matcher itself, not by a constraint. */
export const OWN_RULE = "own-rule";

export class Agent {
  constructor({ handle, id, hostname, region, zone, attributes = [], extensions = [] }) {
    Object.assign(this, { handle, id, hostname, region, zone, attributes, extensions });
  }

  text(name) {
    const found = this.attributes.find(([known]) => known === name)?.[1];
    return typeof found === "string" || typeof found === "number" ? String(found) : undefined;
  }
}

export class AgentSet extends Map {
  constructor(homeRegion, agents = []) {
    super(agents.map((it) => [it.handle, it]));
    this.homeRegion = homeRegion;
  }
}

export class Matcher extends Plugin {
  static world = "attribute-matcher";

  validate(_constraints) {
    return [];
  }

  refusal(_task, _agent) {
    throw new Error(`${this.constructor.name} has no method \`refusal\``);
  }

  evaluate(agents, task, candidates) {
    return candidates.map((it) => this.refusal(task, agents.get(it.agent)));
  }

  place(agents, task, candidates, count) {
    const rejections = this.evaluate(agents, task, candidates);
    const chosen = [];
    for (const [at, it] of candidates.entries()) {
      if (rejections[at] !== undefined) continue;
      const places = Math.min(it.capacity, count - chosen.length);
      for (let more = 0; more < places; more += 1) chosen.push(it.agent);
    }
    return chosen;
  }

  selectKills(_agents, _task, _count) {
    return [];
  }
}

/** The interfaces that a component of this class exports. */
export function component(plugin) {
  const { about, plugin: configured } = described(plugin);

  class Agents {
    constructor(homeRegion) {
      this.agents = new AgentSet(homeRegion);
    }

    update(changed, gone) {
      for (const it of changed) {
        const attributes = it.attributes.map(({ name, value }) => [name, plainValue(value)]);
        this.agents.set(it.handle, new Agent({ ...it, attributes }));
      }
      for (const handle of gone) this.agents.delete(handle);
    }

    evaluate(task, candidates) {
      const rejections = configured().evaluate(this.agents, plainTask(task), candidates);
      const own = task.constraints.length;
      return rejections.map((it) => (it === undefined ? { tag: "fits" } : { tag: "refused", val: it === OWN_RULE ? own : it }));
    }

    place(task, candidates, count) {
      return configured().place(this.agents, plainTask(task), candidates, count);
    }

    selectKills(task, count) {
      return configured().selectKills(this.agents, plainTask(task), count);
    }
  }

  const validate = (constraints) => configured().validate(constraints.map(plainConstraint));
  return { about, matcher: { AgentSet: Agents, validate } };
}

function plainValue({ tag, val }) {
  return tag === "set" ? new Set(val) : val;
}

/** Converts a constraint: a field constraint is an object, and an expression is a text. */
const plainConstraint = ({ val }) => val;

const plainTask = (task) => ({ ...task, placed: [...task.placed], constraints: task.constraints.map(plainConstraint) });
