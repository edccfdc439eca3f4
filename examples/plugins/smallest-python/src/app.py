"""Keeps what load tests do out of the event stream: as little as a plugin can be."""

from transom_plugin import export
from transom_plugin.events import DROP, PASS, Filter


class Quiet(Filter):
    name, version, summary = "smallest-python", "0.1.0", "keeps what load tests do out of the event stream"

    def open(self, query):
        def decide(event):
            load = (event.subject or "").startswith("/load/")
            return PASS if query.wants(event.kind) and not load else DROP

        return decide


export(Quiet)
