"""Cases of `event-filter`: a query, some events, and their decisions."""

from __future__ import annotations

import json
from typing import Any

from transom_plugin.events import DROP, PASS, Event, Filter, Query
from transom_plugin.plugin import Refused
from transom_plugin.testing.forms import (
    TEXT_PAIRS,
    TEXTS,
    U64,
    Answer,
    CaseError,
    Fault,
    Prepared,
    Table,
    flag,
    items,
    json_object,
    one_of,
    show,
    text,
)


def prepare(case: Any) -> Prepared:
    """Reads a case."""
    table = Table(case, "case")
    query = Query(
        table.take("event-types", TEXTS, []),
        table.text("filter"),
        table.text("principal"),
        table.take("extensions", TEXT_PAIRS, []),
    )
    given = table.take("events", items(_event), [])
    events = [_with_sequence(event, number) for number, event in enumerate(given, 1)]
    expect = table.take("expect", items(_expected))
    refused = table.take("refused", flag, False)
    table.end()
    expected: Answer | None = None
    if refused:
        expected = {"refused": True}
    elif expect is not None:
        expected = {"expect": expect}
    elif not events:
        # The query has to be accepted.
        expected = {"expect": []}

    def answer(plugin: Filter) -> Answer:
        try:
            decide = plugin.open(query)
        except Refused:
            return {"refused": True}
        return {"expect": [_decision(decide(event), at) for at, event in enumerate(events)]}

    return Prepared(answer, expected)


def _event(value: Any, path: str) -> tuple[int | None, str, str | None, str]:
    table = Table(value, path)
    sequence = table.take("sequence", U64)
    kind = table.need("kind", text)
    subject = table.text("subject")
    body = table.take("body", _body, {})
    table.end()
    if not isinstance(body, str):
        members = {"eventType": kind, "timestamp": "2000-01-01T00:00:00.000Z", **body}
        body = json.dumps(members)
    return sequence, kind, subject, body


def _body(value: Any, path: str) -> Any:
    if not isinstance(value, dict | str):
        raise CaseError(f"{path}: found {show(value)}, expected a table or a string")
    return value


def _with_sequence(event: tuple[int | None, str, str | None, str], number: int) -> Event:
    sequence, kind, subject, body = event
    return Event(number if sequence is None else sequence, kind, subject, body)


def _expected(value: Any, path: str) -> Any:
    if value in ("pass", "drop"):
        return value
    key, _ = one_of(value, path)
    if key != "replace":
        raise CaseError(f"{path}: unknown variant `{key}`, expected `pass`, `drop` or `replace`")
    return value


def _decision(of: Any, at: int) -> Any:
    if isinstance(of, str) and of in (PASS, DROP):
        return of
    document = json_object(json.dumps(of))
    if document is None:
        raise Fault(f"the replacement of event {at} is not a JSON object")
    return {"replace": document}
