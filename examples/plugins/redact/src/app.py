"""Hides secrets in apps' environments from event subscribers. The decisions are in filter.py."""

import json

import filter
from wit_world.exports import about

TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}}

# JSON Schema 2020-12 of the manifest's [config].
SCHEMA = {
    "type": "object",
    "properties": {"secrets": TEXTS, "opt-in": TEXTS},
    "required": ["secrets"],
    "additionalProperties": False,
}


class About:
    """The interface that every plugin exports."""

    def describe(self):
        return about.Description(
            name="redact",
            version="0.1.0",
            summary="hides the secrets in apps' environments from subscribers",
            config_schema=json.dumps(SCHEMA),
        )

    def configure(self, config):
        """Called once for every instance. The document matches the schema."""
        document = json.loads(config)
        filter.secrets = [pattern.lower() for pattern in document["secrets"]]
        filter.opt_in = document.get("opt-in", [])


class Filter:
    """The interface has no functions outside its resource, which is in filter.py."""
