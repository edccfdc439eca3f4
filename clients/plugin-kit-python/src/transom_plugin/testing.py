"""Runs the attempts of a probe natively, in unit tests, without a daemon and without WebAssembly.

The methods of the other worlds' classes are called directly. ``transom plugin test`` runs recorded cases
of every world on the component, under the limits of its manifest.

>>> from transom_plugin.probe import Endpoint
>>> class Ping(Probe):
...     def attempt(self, request):
...         yield Connect(request.endpoint)
...         yield Send(b"PING")
...         return {"pong": (yield Receive(64)) == b"PONG"}
>>> here = Endpoint("10.0.0.1", 6379)
>>> exchanges = [(Connect(here), 3), (Send(b"PING"), None), (Receive(64), b"PONG")]
>>> attempt(Ping({}), Request(endpoint=here), exchanges)
{'pong': True}
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from transom_plugin.probe import (
    Answer,
    Connect,
    ExitCode,
    Failed,
    Http,
    HttpStatus,
    Outcome,
    Probe,
    Receive,
    Request,
    Run,
    Running,
    Send,
    Shell,
    Step,
    Tcp,
)

__all__ = ["attempt"]

#: Maximum bytes of a custom result.
_MAX_OUTCOME = 4096


def attempt(probe: Probe, request: Request, exchanges: Iterable[tuple[Step, Answer]] = ()) -> Outcome | Failed:
    """Runs one attempt and returns its result.

    ``exchanges``: each step that the probe is expected to request, with the answer of the host; an
    :class:`~transom_plugin.probe.IoError` is raised in the attempt. Raises :class:`AssertionError` if the
    probe requests other steps, or returns a result that the host rejects.
    """
    running = Running(probe, request)
    found = running.first()
    for number, (expected, answer) in enumerate(exchanges, 1):
        if found != expected:
            raise AssertionError(f"step {number}: found {found!r}, expected {expected!r}")
        found = running.next(answer)
    match found:
        case Failed() | Tcp() | ExitCode():
            return found
        case HttpStatus():
            if not 100 <= found.status <= 599:
                raise AssertionError(f"found the HTTP status {found.status}, expected one from 100 to 599")
        case Http() | Connect() | Send() | Receive() | Shell() | Run():
            raise AssertionError(f"after the last answer: found {found!r}, expected a result")
        case Mapping():
            size = len(json.dumps(found).encode())
            if size > _MAX_OUTCOME:
                raise AssertionError(f"the custom result has {size} bytes, expected at most {_MAX_OUTCOME}")
        case _:
            raise AssertionError(f"found {found!r}, expected a step or a result")
    return found
