/** A JSON object. */
export type Json = { [key: string]: unknown };

/** Names and values, in order. */
export type Pairs = [string, string][];

/** What an operator sees of a plugin. Each text but the schema has at most 256 bytes. */
export interface About {
  name: string;
  version: string;
  /** One line for an operator's table. */
  summary: string;
  /**
   * JSON Schema (2020-12) of the configuration. The host checks a document against it before the plugin gets it.
   * Without one the plugin takes no configuration.
   */
  schema?: Json;
}

/** One error in a configuration. */
export interface ConfigError {
  /** JSON Pointer (RFC 6901) of the invalid value; empty: the whole document. */
  pointer: string;
  /** The expected value, for the operator. */
  message: string;
}

/** The operator's configuration is invalid; thrown by a plugin's constructor. */
export class InvalidConfig extends Error {
  constructor(pointer: string, message: string, more?: ConfigError[]);
  readonly errors: ConfigError[];
}

/** A filter refuses a query, or a bootstrap handler a container. `message` is for people. */
export class Refused extends Error {
  /** `retry`: whether a later call may succeed; for bootstrap handlers. */
  constructor(message: string, retry?: boolean);
  readonly retry: boolean;
}

/** The base of the four worlds' classes. A component makes one object of its class. */
export abstract class Plugin {
  /** Every plugin's class has its own. */
  static about: About;
  constructor(config: Json);
}

/** A plugin's class. */
export type PluginClass<P extends Plugin = Plugin> = { new (config: any): P; about: About };

/** The interface that every component exports. */
export interface AboutInterface {
  describe(): { name: string; version: string; summary: string; configSchema?: string };
  configure(config: string): void;
}
