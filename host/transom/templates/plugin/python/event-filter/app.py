"""Hides the events of some apps."""

from transom_plugin import Refused, export
from transom_plugin.events import DROP, PASS, Filter


class Hides(Filter):
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"
    # What the operator may write under [config]: JSON Schema 2020-12.
    schema = {
        "type": "object",
        "properties": {"hide": {"type": "array", "items": {"type": "string", "pattern": "^/"}}},
        "additionalProperties": False,
    }

    def __init__(self, config):
        """Called once in every instance. The document has passed the schema."""
        self.hide = config.get("hide", [])

    def open(self, query):
        """Called once for each distinct query. The subscriber receives the text of a refusal."""
        if query.expression is not None:
            raise Refused("this filter takes no expressions")

        def decide(event):
            hidden = any(below(event.subject, group) for group in self.hide)
            return PASS if query.wants(event.kind) and not hidden else DROP

        return decide


def below(app, group):
    """Whether an app is this one, or in this group."""
    return app is not None and (app == group or app.startswith(group + "/"))


export(Hides)
