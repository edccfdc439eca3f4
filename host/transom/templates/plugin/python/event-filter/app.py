"""Hides the events of some apps. What is decided is in filter.py, named after its interface."""

import json

import filter
from wit_world.exports import about

# What the operator may write under [config]: JSON Schema 2020-12.
SCHEMA = {
    "type": "object",
    "properties": {"hide": {"type": "array", "items": {"type": "string", "pattern": "^/"}}},
    "additionalProperties": False,
}


class About:
    """What the host asks of every plugin."""

    def describe(self):
        return about.Description(
            name="{{name}}",
            version="0.1.0",
            summary="{{summary}}",
            config_schema=json.dumps(SCHEMA),
        )

    def configure(self, config):
        """Asked once of every instance. The document has passed the schema."""
        filter.hide = json.loads(config).get("hide", [])


class Filter:
    """The interface has no functions of its own."""
