"""Hides the events of some apps."""

from transom_plugin import Refused, export
from transom_plugin.events import DROP, PASS, Filter


class AppFilter(Filter):
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"
    # JSON Schema 2020-12 of the manifest's [config].
    schema = {
        "type": "object",
        "properties": {"hide": {"type": "array", "items": {"type": "string", "pattern": "^/"}}},
        "additionalProperties": False,
    }

    def __init__(self, config):
        """Called once for every instance. The document matches the schema."""
        self.hide = config.get("hide", [])

    def open(self, query):
        """Called once for each distinct query. The subscriber receives the text of a rejection."""
        if query.expression is not None:
            raise Refused("this filter takes no expressions")

        def decide(event):
            hidden = any(below(event.subject, group) for group in self.hide)
            return PASS if query.wants(event.kind) and not hidden else DROP

        return decide


def below(app, group):
    """Whether an app is the given app or belongs to the given group."""
    return app is not None and (app == group or app.startswith(group + "/"))


export(AppFilter)
