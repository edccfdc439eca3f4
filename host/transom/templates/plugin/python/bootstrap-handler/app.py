"""Has every container say where it runs before it runs anything."""

import json

from componentize_py_types import Err
from wit_world.exports import about
from wit_world.exports.bootstrap import Prepared, Refusal


class About:
    """What the host asks of every plugin."""

    def describe(self):
        # Without a schema it takes no configuration.
        return about.Description(
            name="{{name}}",
            version="0.1.0",
            summary="{{summary}}",
            config_schema=None,
        )

    def configure(self, config):
        if json.loads(config) != {}:
            raise Err([about.ConfigError("", "expected no configuration")])


class Bootstrap:
    def prepare(self, context, script):
        """Pure: the same arguments give the same result."""
        if not script:
            raise Err(Refusal("there is no script to run", False))
        role = context.role.name.lower()
        greeting = f"echo '{role} {context.number} on {context.host}'\n"
        return Prepared(
            script=greeting.encode() + script,
            environment=[*context.environment, ("TRANSOM_ROLE", role)],
            arguments=context.arguments,
        )
