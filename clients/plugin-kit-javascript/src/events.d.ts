import { AboutInterface, Json, Pairs, Plugin, PluginClass } from "./plugin.js";

export { About, ConfigError, InvalidConfig, Refused } from "./plugin.js";

/** One event of the stream. */
export interface Event {
  sequence: bigint;
  /** `status_update_event` and so on. */
  kind: string;
  /** The app, pod or group of the event. */
  subject?: string;
  /** The event's JSON document, as text, because most filters need not parse it. */
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
  /** Whether the query selects this kind: it names the kind, or names none at all. */
  wants(kind: string): boolean;
}

/** An object is sent in place of the event's document, with `eventType` and `timestamp` kept. */
export type Decision = "pass" | "drop" | Json;

/** A plugin of the world `event-filter`. */
export abstract class Filter extends Plugin {
  static readonly world: "event-filter";
  /**
   * Prepares a query: returns a function that decides about each event. Called once for each distinct query.
   * Throws `Refused` with a text for the subscriber. The decision about an event must always be the same.
   */
  abstract open(query: Query): (event: Event) => Decision;
}

/** The exports of a component of this class: `export const { about, filter } = component(MyFilter);`. */
export function component(plugin: PluginClass<Filter>): { about: AboutInterface; filter: object };
