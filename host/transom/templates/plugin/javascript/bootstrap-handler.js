// Has every container say where it runs before it runs anything.

// What the host asks of every plugin.
export const about = {
  // Without a schema it takes no configuration.
  describe() {
    return { name: "{{name}}", version: "0.1.0", summary: "{{summary}}" };
  },

  configure() {},
};

export const bootstrap = {
  // Pure: the same arguments give the same result.
  prepare(context, script) {
    if (script.length === 0) throw { message: "there is no script to run", retry: false };
    const { role, number, host, environment } = context;
    const greeting = new TextEncoder().encode(`echo '${role} ${number} on ${host}'\n`);
    return {
      script: new Uint8Array([...greeting, ...script]),
      environment: [...environment, ["TRANSOM_ROLE", role]],
      arguments: context.arguments,
    };
  },
};
