"""``check-probe``: checks a running task.

A probe does no input or output itself. An attempt is a generator: it yields the next step, the host
performs it within the plugin's grants, and the step's result is the value of the ``yield``. A step
that fails raises :class:`IoError` there. The generator returns the result of the attempt.

>>> class Ping(Probe):
...     name, version, summary = "ping", "0.1.0", "whether it answers PING"
...
...     def attempt(self, request):
...         yield Connect(request.endpoint)
...         yield Send(b"PING\\r\\n")
...         line = yield Receive(64)
...         return {"pong": line.startswith(b"+PONG")}

An :class:`IoError` that the attempt does not handle ends it without a result, with a corresponding
reason, and so does :class:`Failed`. Any other exception is a trap.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeAlias

from transom_plugin.plugin import Plugin

Reason: TypeAlias = Literal["timed-out", "denied", "unreachable", "invalid", "internal"]
ErrorKind: TypeAlias = Literal[
    "denied",
    "unresolved",
    "refused",
    "unreachable",
    "timed-out",
    "closed",
    "tls",
    "protocol",
    "unavailable",
]

_REASONS: dict[str, Reason] = {
    "denied": "denied",
    "timed-out": "timed-out",
    "tls": "invalid",
    "protocol": "invalid",
}


class Failed(Exception):
    """Ends an attempt without a result. ``message``: one line, for the author of the check."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason: Reason = reason
        self.message = message


class IoError(Exception):
    """A step failed. Raised in the attempt, which may handle it.

    >>> IoError("refused").failed().reason
    'unreachable'
    """

    def __init__(self, kind: ErrorKind, message: str = "") -> None:
        super().__init__(f"{kind}: {message}" if message else kind)
        self.kind: ErrorKind = kind
        self.message = message

    def failed(self) -> Failed:
        """The failure of an attempt that this error ends without a result."""
        return Failed(_REASONS.get(self.kind, "unreachable"), str(self))


@dataclass(frozen=True)
class Endpoint:
    """Destination of a connection: a name or an address (IPv6 without brackets), and a port."""

    host: str
    port: int


@dataclass(frozen=True)
class Port:
    """A port of the task, and how the probing host reaches it."""

    name: str | None
    #: `tcp`, `udp` or `udp,tcp`.
    protocol: str
    endpoint: Endpoint


@dataclass(frozen=True)
class HttpStatus:
    """A result: an HTTP status code, 100 to 599."""

    status: int


@dataclass(frozen=True)
class Tcp:
    """A result: whether the connection succeeded."""

    succeeded: bool


@dataclass(frozen=True)
class ExitCode:
    """A result: a command's exit code."""

    code: int


#: The result of an attempt. A mapping is a custom result of the plugin, at most 4,096 bytes as JSON.
Outcome: TypeAlias = HttpStatus | Tcp | ExitCode | Mapping[str, Any]


@dataclass(frozen=True)
class Request:
    """One probe of one task."""

    run_spec: str = "/app"
    task: str = "app.1"
    agent: str = "localhost"
    labels: list[tuple[str, str]] = field(default_factory=list)
    ports: list[Port] = field(default_factory=list)
    #: The port that the check names; None: it names none.
    endpoint: Endpoint | None = None
    path: str = "/"
    #: The check's `exec.command.shell`.
    command: str | None = None
    #: The check's `plugin.settings`, as JSON.
    settings: str = "{}"
    #: The result of the last finished attempt on this task.
    previous: Outcome | None = None
    #: Milliseconds for the whole attempt.
    timeout: int = 20_000
    extensions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Tls:
    """TLS on a connection. ``server_name``: empty: the endpoint's host."""

    server_name: str = ""
    #: False needs a grant.
    verify: bool = True


class _To:
    """A step that needs an endpoint: without one it ends the attempt."""

    endpoint: Endpoint | None

    def __post_init__(self) -> None:
        if self.endpoint is None:
            raise Failed("invalid", "the check names no port")


@dataclass(frozen=True)
class Http(_To):
    """Sends a request on a new connection; results in an :class:`HttpResponse`."""

    endpoint: Endpoint | None
    path: str = "/"
    method: str = "GET"
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    tls: Tls | None = None
    #: Maximum bytes to read of the response's body.
    max_body: int = 65_536
    redirects: int = 0


@dataclass(frozen=True)
class Connect(_To):
    """Opens the attempt's connection; results in the milliseconds that it took."""

    endpoint: Endpoint | None
    tls: Tls | None = None


@dataclass(frozen=True)
class Send:
    """Sends all of these bytes; results in None."""

    data: bytes


@dataclass(frozen=True)
class Receive:
    """Receives at least one and at most this number of bytes; results in bytes."""

    most: int


@dataclass(frozen=True)
class Shell:
    """Runs a line with `/bin/sh -c` on the task's agent; results in a :class:`CommandOutput`."""

    line: str


@dataclass(frozen=True)
class Run:
    """Runs a program with arguments on the task's agent; results in a :class:`CommandOutput`."""

    argv: list[str]


Step: TypeAlias = Http | Connect | Send | Receive | Shell | Run


@dataclass(frozen=True)
class HttpResponse:
    """The response to a request. Names of headers are in lower case."""

    status: int
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    #: Milliseconds from the first byte sent to the last header read.
    elapsed: int = 1


@dataclass(frozen=True)
class CommandOutput:
    """The result of a command, with the last 4,096 bytes of each output stream."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


#: The result of a step, or the error to raise in the attempt.
Answer: TypeAlias = HttpResponse | int | bytes | CommandOutput | IoError | None
#: Yields steps, receives their results, returns the outcome. The type of a result depends on the step.
Attempt: TypeAlias = Generator[Step, Any, Outcome]


class Probe(Plugin):
    """A plugin of the world ``check-probe``."""

    world: ClassVar[str] = "check-probe"

    def attempt(self, request: Request) -> Attempt:
        """One attempt on one task: a generator of steps."""
        raise NotImplementedError


class Running:
    """A running attempt, driven as by the host.

    >>> class Look(Probe):
    ...     def attempt(self, request):
    ...         millis = yield Connect(request.endpoint)
    ...         return Tcp(True)
    >>> running = Running(Look({}), Request(endpoint=Endpoint("10.0.0.1", 80)))
    >>> running.first()
    Connect(endpoint=Endpoint(host='10.0.0.1', port=80), tls=None)
    >>> running.next(3)
    Tcp(succeeded=True)
    """

    def __init__(self, probe: Probe, request: Request) -> None:
        self._probe = probe
        self._request = request
        self._attempt: Attempt | None = None

    def first(self) -> Step | Outcome | Failed:
        """Returns the first step."""
        self._attempt = self._probe.attempt(self._request)
        return self._advance(None)

    def next(self, answer: Answer) -> Step | Outcome | Failed:
        """Returns the step after the answer to the last one; an outcome or a failure is the end."""
        return self._advance(answer)

    def _advance(self, answer: Answer) -> Step | Outcome | Failed:
        if self._attempt is None:
            raise RuntimeError("an attempt is asked for its first step first")
        try:
            if isinstance(answer, IoError):
                return self._attempt.throw(answer)
            return self._attempt.send(answer)
        except StopIteration as end:
            found: Outcome = end.value
            return found
        except IoError as error:
            return error.failed()
        except Failed as failed:
            return failed
