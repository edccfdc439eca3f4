// The common parts of plugins of every world: description, configuration, and rejections.

/** The operator's configuration is invalid; thrown by a plugin's constructor. */
export class InvalidConfig extends Error {
  constructor(pointer, message, more = []) {
    const errors = [{ pointer, message }, ...more];
    super(errors.map((it) => `${it.pointer}: ${it.message}`).join("; "));
    this.errors = errors;
  }
}

/** Thrown by a filter to reject a query, or by a bootstrap handler to reject a container. */
export class Refused extends Error {
  constructor(message, retry = false) {
    super(message);
    this.retry = retry;
  }
}

/** The base class of the four worlds' classes. */
export class Plugin {
  static about;

  constructor(_config) {}

  /** Creates the plugin from a configuration, as a component does. */
  static configured(config) {
    if (this.about.schema === undefined && Object.keys(config).length > 0) {
      throw new InvalidConfig("", "expected no configuration");
    }
    return new this(config);
  }
}

/**
 * Returns the interface `about` of a plugin's class, and a function that returns the configured plugin.
 */
export function described(plugin) {
  let configured;
  for (const key of ["name", "version", "summary"]) {
    if (typeof plugin.about?.[key] !== "string") {
      throw new TypeError(`${plugin.name} has no \`about.${key}\`: expected a string`);
    }
  }
  const about = {
    describe() {
      const { name, version, summary, schema } = plugin.about;
      return { name, version, summary, configSchema: schema && JSON.stringify(schema) };
    },

    configure(config) {
      try {
        configured = plugin.configured(JSON.parse(config));
      } catch (error) {
        if (error instanceof InvalidConfig) throw error.errors;
        throw error;
      }
    },
  };
  return { about, plugin: () => configured };
}
