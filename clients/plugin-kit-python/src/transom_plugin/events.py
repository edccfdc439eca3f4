"""``event-filter``: decides which events a subscriber of the event stream receives.

>>> class OnlyShop(Filter):
...     name, version, summary = "only-shop", "0.1.0", "an example"
...
...     def open(self, query):
...         if query.expression is not None:
...             raise Refused("this filter takes no expressions")
...         return lambda event: PASS if event.subject == "/shop" else DROP
>>> decide = OnlyShop({}).open(Query(event_types=[]))
>>> decide(Event(1, "app_terminated_event", "/shop", "{}")), decide(Event(2, "a", None, "{}"))
('pass', 'drop')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, TypeAlias

from transom_plugin.plugin import Plugin, Refused

__all__ = ["DROP", "PASS", "Decision", "Event", "Filter", "Query", "Refused"]

#: Send the event unchanged.
PASS: Final = "pass"
#: Do not send it.
DROP: Final = "drop"

#: The decision about an event. A mapping replaces the event's document; the host keeps `eventType` and
#: `timestamp`.
Decision: TypeAlias = Literal["pass", "drop"] | Mapping[str, Any]


@dataclass(frozen=True)
class Event:
    """One event of the stream."""

    sequence: int
    #: `status_update_event` and so on.
    kind: str
    #: The app, pod or group of the event.
    subject: str | None
    #: The event's JSON document, as text, because most filters need not parse it.
    body: str

    def document(self) -> dict[str, Any]:
        """Parses the body; every access returns a new object."""
        found = json.loads(self.body)
        if not isinstance(found, dict):
            raise ValueError("the body of the event is not an object")
        return found


@dataclass(frozen=True)
class Query:
    """The query of a subscriber."""

    #: Empty: every kind that is not opt-in.
    event_types: list[str]
    #: The `filter` parameter; the plugin defines its language.
    expression: str | None = None
    #: The subscriber's identity, if the host knows it.
    principal: str | None = None
    extensions: list[tuple[str, str]] = field(default_factory=list)

    def wants(self, kind: str) -> bool:
        """Whether the query selects this kind: it names the kind, or names none at all.

        >>> Query([]).wants("a"), Query(["b"]).wants("a")
        (True, False)
        """
        return not self.event_types or kind in self.event_types


class Filter(Plugin):
    """A plugin of the world ``event-filter``."""

    world: ClassVar[str] = "event-filter"

    def open(self, query: Query) -> Callable[[Event], Decision]:
        """Prepares a query: returns a function that decides about each event.

        Called once for each distinct query. Raises :class:`Refused` with a text for the subscriber.
        The decision about an event must always be the same.
        """
        raise NotImplementedError
