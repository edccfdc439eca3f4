"""Whether a task's answer contains a word. The attempts themselves are in probe.py, named after their interface."""

import json

import probe
from wit_world.exports import about

# What the operator may write under [config]: JSON Schema 2020-12.
SCHEMA = {
    "type": "object",
    "properties": {"word": {"type": "string", "minLength": 1}},
    "required": ["word"],
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
        probe.word = json.loads(config)["word"]


class Probe:
    """The interface has no functions of its own."""
