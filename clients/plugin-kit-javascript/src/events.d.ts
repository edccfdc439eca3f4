import { AboutInterface, Json, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig, Refused } from "./plugin.js";

/** One event of the stream. */
export interface Event {
  sequence: bigint;
  /** `status_update_event` and so on. */
  kind: string;
  /** The app, pod or group that it is about. */
  subject?: string;
  /** Its JSON document, as text: most filters need not read it. */
  body: string;
}

/** The query of a subscriber. */
export class Query {
  constructor(query?: { eventTypes?: string[]; expression?: string; principal?: string; extensions?: Pairs });
  /** Empty: every kind that is not opt-in. */
  readonly eventTypes: string[];
  /** The `filter` parameter; the plugin defines its language. */
  readonly expression?: string;
  /** The subscriber's identity, if the host knows it. */
  readonly principal?: string;
  readonly extensions: Pairs;
  /** Whether it asks for this kind: it names it, or names none at all. */
  wants(kind: string): boolean;
}

/** An object is sent in place of the event's document, with `eventType` and `timestamp` kept. */
export type Decision = "pass" | "drop" | Json;

/** A plugin of the world `event-filter`. */
export abstract class Filter extends Plugin {
  static readonly world: "event-filter";
  /**
   * Makes a query ready: returns what decides about each event. Called once for each distinct query. Throws
   * `Refused` with a text for the subscriber. The same events always get the same decisions.
   */
  abstract open(query: Query): (event: Event) => Decision;
}

/** What a component of this class exports: `export const { about, filter } = component(MyFilter);`. */
export function component(plugin: PluginClass<Filter>): { about: AboutInterface; filter: object };
