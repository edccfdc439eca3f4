"""Decides which events a subscriber of the event stream receives, and hides secrets in them."""

import json
from fnmatch import fnmatchcase

from componentize_py_types import Err
from wit_world.exports.filter import Decision_Drop, Decision_Pass, Decision_Replace

# Set by About.configure: patterns of names of variables, in lower case, and of kinds.
secrets = []
opt_in = []


class View:
    """An open query. Equal events get equal decisions."""

    def __init__(self, query):
        self.kinds = set(query.event_types)

    @classmethod
    def open(cls, query):
        """Called once for each distinct query. The subscriber receives the text of a rejection."""
        if query.expression is not None:
            raise Err("this filter takes no expressions")
        return cls(query)

    def decide(self, events):
        """One decision for each event, in order."""
        return [self.one(event) for event in events]

    def one(self, event):
        if self.kinds:
            wanted = event.kind in self.kinds
        else:
            wanted = not matches(event.kind, opt_in)
        if not wanted:
            return Decision_Drop()
        # Most events have no environment, so they need not be parsed.
        if '"env"' not in event.body:
            return Decision_Pass()
        document = json.loads(event.body)
        return Decision_Replace(json.dumps(document)) if redact(document) else Decision_Pass()


def redact(value):
    """Hides the secrets in `value`. Returns whether there were any."""
    if isinstance(value, list):
        # A list, because `any` on a generator would stop at the first item with a secret.
        return any([redact(item) for item in value])
    if not isinstance(value, dict):
        return False
    hidden = False
    for key, item in value.items():
        if key == "env" and isinstance(item, dict):
            hidden = hide(item) or hidden
        else:
            hidden = redact(item) or hidden
    return hidden


def hide(environment):
    names = [name for name in environment if matches(name.lower(), secrets)]
    for name in names:
        environment[name] = "***"
    return bool(names)


def matches(text, patterns):
    return any(fnmatchcase(text, pattern) for pattern in patterns)
