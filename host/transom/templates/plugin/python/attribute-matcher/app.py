"""Places tasks by ["attribute", "IS", "value"], and nowhere where maintenance is done. The agents are in matcher.py."""

import json

import matcher
from componentize_py_types import Err
from wit_world.exports import about
from wit_world.exports.matcher import ConstraintError


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


class Matcher:
    def validate(self, constraints):
        """Asked when a definition is posted: what is wrong with its constraints."""
        return [
            ConstraintError(at, 'expected ["attribute", "IS", "value"]')
            for at, constraint in enumerate(constraints)
            if matcher.understood(constraint) is None
        ]
