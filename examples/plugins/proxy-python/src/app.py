"""Sends the internet traffic of a cluster's containers through a proxy: sets the variables of the script,
which the processes that it starts inherit."""

from transom_plugin import export, log
from transom_plugin.bootstrap import Bootstrap, Prepared, Refused

URL = {"type": "string", "pattern": "^https?://[^/]+/?$"}


class Proxy(Bootstrap):
    name, version, summary = "proxy-python", "0.1.0", "sets the variables of an HTTP proxy"
    # JSON Schema 2020-12 of the manifest's [config].
    schema = {
        "type": "object",
        "properties": {"url": URL, "except": {"type": "array", "items": {"type": "string", "minLength": 1}}},
        "required": ["url"],
        "additionalProperties": False,
    }

    def __init__(self, config):
        url, others = config["url"], ",".join(config.get("except", []))
        self.variables = {"HTTP_PROXY": url, "HTTPS_PROXY": url, "NO_PROXY": others}

    def prepare(self, context, script):
        if not script:
            raise Refused("there is no script to run")
        # Variables that the definition of the framework sets take precedence.
        own = {name.upper() for name, _ in context.environment}
        added = [(name, value) for name, value in self.variables.items() if name not in own]
        log.debug(f"{context.task}: {len(added)} variables")
        return Prepared(script, [*context.environment, *added], context.arguments)


export(Proxy)
