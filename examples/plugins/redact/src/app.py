"""Hides secrets in apps' environments from subscribers of the event stream. filter.py has the decisions."""

import json

import filter
from wit_world.exports import about

TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}}

# What the operator may write under [config]: JSON Schema 2020-12.
SCHEMA = {
    "type": "object",
    "properties": {"secrets": TEXTS, "opt-in": TEXTS},
    "required": ["secrets"],
    "additionalProperties": False,
}


class About:
    """What the host asks of every plugin."""

    def describe(self):
        return about.Description(
            name="redact",
            version="0.1.0",
            summary="hides the secrets in apps' environments from those who watch events",
            config_schema=json.dumps(SCHEMA),
        )

    def configure(self, config):
        """Called once for every instance. The document matches the schema."""
        document = json.loads(config)
        filter.secrets = [pattern.lower() for pattern in document["secrets"]]
        filter.opt_in = document.get("opt-in", [])


class Filter:
    """The interface has no functions of its own."""
