"""Makes every container print its host before it runs anything."""

from transom_plugin import Refused, export
from transom_plugin.bootstrap import Bootstrap, Prepared


class HostPrinter(Bootstrap):
    # It has no schema, so it takes no configuration.
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"

    def prepare(self, context, script):
        """A pure function: the same arguments always give the same result."""
        if not script:
            raise Refused("there is no script to run")
        greeting = f"echo '{context.role} {context.number} on {context.host}'\n"
        return Prepared(
            script=greeting.encode() + script,
            environment=[*context.environment, ("TRANSOM_ROLE", context.role)],
            arguments=context.arguments,
        )


export(HostPrinter)
