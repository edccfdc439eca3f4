"""Keeps the events of load tests out of the event stream. This is the smallest possible plugin."""

from transom_plugin import export
from transom_plugin.events import DROP, PASS, Filter


class Quiet(Filter):
    name, version = "smallest-python", "0.1.0"
    summary = "keeps the events of load tests out of the event stream"

    def open(self, query):
        def decide(event):
            load = (event.subject or "").startswith("/load/")
            return PASS if query.wants(event.kind) and not load else DROP

        return decide


export(Quiet)
