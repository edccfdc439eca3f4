import { AboutInterface, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig } from "./plugin.js";

/** A refusal by a rule of the matcher itself, not by a constraint. */
export const OWN_RULE: "own-rule";

/**
 * Why an agent is refused: the index of the first constraint that it does not satisfy, or `OWN_RULE`. Undefined: it
 * fits.
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
  /** The host's number for this agent. */
  readonly handle: number;
  /** The cluster's id for it. */
  readonly id: string;
  readonly hostname: string;
  readonly region?: string;
  readonly zone?: string;
  /** A name may occur twice. */
  readonly attributes: [string, Value][];
  readonly extensions: Pairs;
  /**
   * The first attribute of this name as a constraint writes it; undefined: it has none, or several values.
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

/** An error in the constraint of this index. */
export interface ConstraintError {
  constraint: number;
  /** The found and the expected value, for the author of the definition. */
  message: string;
}

/** The task to place one more instance of. */
export interface Task {
  runSpec: string;
  /** How many instances are wanted in all. */
  instances: number;
  constraints: Constraint[];
  /** Handles of the agents that run an instance now; one with two instances occurs twice. */
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
 * A plugin of the world `attribute-matcher`. Most judge each agent by itself: they have `refusal`, and the base class
 * does the rest. One that weighs agents against each other has `evaluate` and `place`.
 */
export class Matcher extends Plugin {
  static readonly world: "attribute-matcher";
  /** What is wrong with the constraints of a definition that a client posts; by default nothing. */
  validate(constraints: Constraint[]): ConstraintError[];
  /** Why one more instance may not run on this agent. */
  refusal(task: Task, agent: Agent): Refusal;
  /** For each candidate, in order, whether one more instance may go there. */
  evaluate(agents: AgentSet, task: Task, candidates: Candidate[]): Refusal[];
  /**
   * Handles of agents for up to `count` further instances, as if placed one after the other; by default as the host
   * prefers them.
   */
  place(agents: AgentSet, task: Task, candidates: Candidate[], count: number): number[];
  /** Which of the placed instances to kill, as indices into `task.placed`; by default the host chooses. */
  selectKills(agents: AgentSet, task: Task, count: number): number[];
}

/** What a component of this class exports: `export const { about, matcher } = component(MyMatcher);`. */
export function component(plugin: PluginClass<Matcher>): { about: AboutInterface; matcher: object };
