import { AboutInterface, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig } from "./plugin.js";

/** A rejection by a rule of the matcher itself, not by a constraint. */
export const OWN_RULE: "own-rule";

/**
 * Why an agent is rejected: the index of the first constraint that it does not satisfy, or `OWN_RULE`.
 * Undefined: the agent fits.
 */
export type Refusal = number | "own-rule" | undefined;

/** The value of an attribute: a text, a number, inclusive ranges, or a set. */
export type Value = string | number | [bigint, bigint][] | Set<string>;

/** An agent of the cluster. */
export class Agent {
  constructor(agent: {
    handle: number;
    id: string;
    hostname: string;
    region?: string;
    zone?: string;
    attributes?: [string, Value][];
    extensions?: Pairs;
  });
  /** The number by which the host identifies this agent. */
  readonly handle: number;
  /** The agent's id in the cluster. */
  readonly id: string;
  readonly hostname: string;
  readonly region?: string;
  readonly zone?: string;
  /** Names and values. A name may occur several times. */
  readonly attributes: [string, Value][];
  readonly extensions: Pairs;
  /**
   * The first attribute of this name, in the form of a constraint's value; undefined if the agent has no such
   * attribute, or if it has several values.
   */
  text(name: string): string | undefined;
}

/** The cluster's agents, by their handles. */
export class AgentSet extends Map<number, Agent> {
  constructor(homeRegion?: string, agents?: Agent[]);
  /** The master's region, if it has one. */
  readonly homeRegion?: string;
}

/** A text is an attribute entry of a workflow task, as written: `gpu:true`. Operators are in upper case. */
export type Constraint = string | { field: string; operator: string; operand?: string };

/** An error in the constraint with this index. */
export interface ConstraintError {
  constraint: number;
  /** The found and the expected value, for the author of the definition. */
  message: string;
}

/** The task that needs further instances. */
export interface Task {
  runSpec: string;
  /** How many instances are wanted in all. */
  instances: number;
  constraints: Constraint[];
  /** Handles of the agents that run an instance now; an agent with two instances occurs twice. */
  placed: number[];
  extensions: Pairs;
}

/** An agent with room for at least one instance. */
export interface Candidate {
  /** Its handle. */
  agent: number;
  /** How many more instances its resources allow. */
  capacity: number;
}

/**
 * A plugin of the world `attribute-matcher`. Most matchers evaluate each agent separately: they have
 * `refusal`, and the base class does the rest. A matcher that compares agents has `evaluate` and `place`.
 */
export class Matcher extends Plugin {
  static readonly world: "attribute-matcher";
  /** Returns the errors in the constraints of a definition that a client posts; by default none. */
  validate(constraints: Constraint[]): ConstraintError[];
  /** Returns why one more instance may not run on this agent. */
  refusal(task: Task, agent: Agent): Refusal;
  /** Returns for each candidate, in order, why it may not run one more instance; undefined: it may. */
  evaluate(agents: AgentSet, task: Task, candidates: Candidate[]): Refusal[];
  /**
   * Returns the handles of agents for up to `count` further instances, as if they were placed one after the
   * other; by default in the host's order of preference.
   */
  place(agents: AgentSet, task: Task, candidates: Candidate[], count: number): number[];
  /** Selects instances to kill, as indices into `task.placed`; by default the host selects them. */
  selectKills(agents: AgentSet, task: Task, count: number): number[];
}

/** The exports of a component of this class: `export const { about, matcher } = component(MyMatcher);`. */
export function component(plugin: PluginClass<Matcher>): { about: AboutInterface; matcher: object };
