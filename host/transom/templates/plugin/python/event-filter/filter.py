"""What a subscriber of the event stream sees."""

from componentize_py_types import Err
from wit_world.exports.filter import Decision_Drop, Decision_Pass

# Set by About.configure.
hide = []


class View:
    """A query made ready: the same events always get the same decisions."""

    def __init__(self, query):
        self.kinds = set(query.event_types)

    @classmethod
    def open(cls, query):
        """Asked once for each distinct query. A refusal is what the subscriber gets to read."""
        if query.expression is not None:
            raise Err("this filter takes no expressions")
        return cls(query)

    def decide(self, events):
        """One decision for each event, in order."""
        return [Decision_Pass() if self.shows(event) else Decision_Drop() for event in events]

    def shows(self, event):
        if self.kinds and event.kind not in self.kinds:
            return False
        return not any(below(event.subject, group) for group in hide)


def below(app, group):
    """Whether an app is this one, or in this group."""
    return app is not None and (app == group or app.startswith(group + "/"))
