/** A JSON object. */
export type Json = { [key: string]: unknown };

/** Names and values, in order. */
export type Pairs = [string, string][];

/** A plugin's description for operators. Each text except the schema has at most 256 bytes. */
export interface About {
  name: string;
  version: string;
  /** One line for an operator's table. */
  summary: string;
  /**
   * JSON Schema (2020-12) of the configuration. The host validates a document with it before the plugin
   * receives the document. Without a schema the plugin accepts no configuration.
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

/**
 * Thrown by a filter to reject a query, or by a bootstrap handler to reject a container. `message` is for
 * people.
 */
export class Refused extends Error {
  /** `retry`: whether a later call may succeed; for bootstrap handlers. */
  constructor(message: string, retry?: boolean);
  readonly retry: boolean;
}

/** The base class of the four worlds' classes. A component creates one object of its class. */
export abstract class Plugin {
  /** Every plugin class defines its own description. */
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
