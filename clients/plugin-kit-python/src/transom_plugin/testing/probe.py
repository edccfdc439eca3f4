"""Cases of `check-probe`: a request, the answer to each step, and the result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transom_plugin import probe as kit
from transom_plugin.testing.forms import (
    I32,
    TEXT_PAIRS,
    TEXTS,
    U8,
    U16,
    U32,
    U64,
    Answer,
    CaseError,
    Fault,
    Prepared,
    Table,
    data,
    flag,
    items,
    one_of,
    same_but_for_masks,
    show,
    table,
    text,
    written,
)

#: Maximum bytes of a custom result.
_MAX_OUTCOME = 4096
_REASONS = ("timed-out", "denied", "unreachable", "invalid", "internal", "plugin")
_ERRORS = (
    "denied",
    "unresolved",
    "refused",
    "unreachable",
    "timed-out",
    "closed",
    "tls",
    "protocol",
    "unavailable",
)
#: Errors with a text.
_DETAILED = ("tls", "protocol", "unavailable")
#: Headers that only the host sets.
_OWN_HEADERS = (
    "host",
    "connection",
    "content-length",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
)


def prepare(case: Any) -> Prepared:
    """Reads a case."""
    given = Table(case, "case")
    endpoint = given.take("endpoint", _endpoint)
    usual = [] if endpoint is None else [kit.Port(None, "tcp", endpoint)]
    previous = given.take("previous", _expected)
    if previous is not None and "failed" in previous:
        raise CaseError("`previous` is a failure; expected a result")
    request = kit.Request(
        run_spec=given.text("run-spec", "/self-test"),
        task=given.text("task", "self-case.1"),
        agent=given.text("agent", "localhost"),
        labels=given.take("labels", TEXT_PAIRS, []),
        ports=given.take("ports", items(_port), usual),
        endpoint=endpoint,
        path=given.text("path", "/"),
        command=given.text("command"),
        settings=json.dumps(given.take("settings", table, {})),
        previous=None if previous is None else _outcome(previous),
        timeout=given.take("timeout-millis", U32, 20_000),
        extensions=given.take("extensions", TEXT_PAIRS, []),
    )
    steps = given.take("steps", items(_given_step))
    answers = given.take("answers", items(_given_answer), [])
    expect = given.take("expect", _expected)
    given.end()
    if steps is not None and len(steps) != len(answers):
        raise CaseError(
            f"`steps` has {len(steps)} members; expected one for each of the {len(answers)} answers"
        )

    def answer(plugin: kit.Probe) -> Answer:
        running = kit.Running(plugin, request)
        step = running.first()
        for at, (kind, value) in enumerate(answers):
            found = _end(step)
            if found is not None:
                raise Fault(f"the attempt ended with {json.dumps(found)} and left answers unused")
            if steps is not None:
                _check_step(step, steps[at], at)
            step = running.next(_answer_to(step, kind, value))
        found = _end(step)
        if found is None:
            raise Fault(f"after the last answer it requests {_name(step)}")
        return {"expect": found}

    return Prepared(answer, None if expect is None else {"expect": expect})


def _end(step: Any) -> dict[str, Any] | None:
    """Returns the result of an attempt that has ended; None if it has not."""
    match step:
        case kit.HttpStatus():
            if not 100 <= step.status <= 599:
                raise Fault(f"{step.status} is not a valid HTTP status code: expected one from 100 to 599")
            return {"http": step.status}
        case kit.Tcp():
            return {"tcp": step.succeeded}
        case kit.ExitCode():
            return {"command": step.code}
        case kit.Failed():
            return {"failed": step.reason}
        case kit.Http() | kit.Connect() | kit.Send() | kit.Receive() | kit.Shell() | kit.Run():
            return None
    if not isinstance(step, Mapping):
        raise Fault(f"the attempt returned {type(step).__name__}; expected a step or an outcome")
    written = json.dumps(step)
    if len(written.encode()) > _MAX_OUTCOME:
        # The host reports the same failure.
        return {"failed": "plugin"}
    return {"custom": json.loads(written)}


def _name(step: Any) -> str:
    names = {kit.Http: "an HTTP exchange", kit.Connect: "a connection", kit.Send: "sending"}
    return names.get(type(step), "receiving" if isinstance(step, kit.Receive) else "a command")


def _answer_to(step: Any, kind: str, value: Any) -> kit.Answer:
    if isinstance(step, kit.Http) and not (kind == "error" and value.kind == "protocol"):
        for name, _ in step.headers:
            if name.lower() in _OWN_HEADERS:
                raise Fault(
                    f"it asks for an HTTP exchange with the header {name.lower()}, which only the host "
                    "may set; in service this step fails with `protocol`"
                )
    kinds = {
        kit.Http: "http",
        kit.Connect: "connected",
        kit.Send: "sent",
        kit.Receive: "received",
        kit.Shell: "ran",
        kit.Run: "ran",
    }
    if kind not in ("error", kinds[type(step)]):
        raise Fault(f"it requests {_name(step)}, the test answers `{kind}`")
    if kind == "sent":
        return None if value else kit.IoError("closed")
    found: kit.Answer = value
    return found


def _check_step(step: Any, wanted: dict[str, Any], at: int) -> None:
    asked = _as_given(step)
    if not same_but_for_masks(wanted, asked):
        raise Fault(f"step {at + 1}: it requests {show(asked)}, expected {show(wanted)}")


def _as_given(step: Any) -> dict[str, Any]:
    match step:
        case kit.Http():
            found = {
                "method": step.method,
                "to": _shown(step.endpoint),
                "tls": _tls_of(step.tls),
                "path": step.path,
                "headers": [list(it) for it in step.headers] or None,
                "body": written(step.body),
                "max-body": step.max_body,
                "redirects": step.redirects,
            }
            return {"http": {key: it for key, it in found.items() if it is not None}}
        case kit.Connect():
            found = {"to": _shown(step.endpoint), "tls": _tls_of(step.tls)}
            return {"connect": {key: it for key, it in found.items() if it is not None}}
        case kit.Send():
            return {"send": written(step.data)}
        case kit.Receive():
            return {"receive": step.most}
        case kit.Shell():
            return {"shell": step.line}
    return {"argv": list(step.argv)}


def _tls_of(tls: kit.Tls | None) -> Any:
    return None if tls is None else {"server-name": tls.server_name, "verify": tls.verify}


def _shown(endpoint: kit.Endpoint | None) -> str:
    assert endpoint is not None
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{host}:{endpoint.port}"


def _given_step(value: Any, path: str) -> dict[str, Any]:
    kind, it = one_of(value, path)
    where = f"{path}.{kind}"
    if kind == "http":
        given = Table(it, where)
        headers = [list(pair) for pair in given.take("headers", TEXT_PAIRS, [])]
        found = {
            "method": given.need("method", text),
            "to": given.need("to", text),
            "tls": given.take("tls", _given_tls),
            "path": given.need("path", text),
            "headers": headers or None,
            "body": written(given.take("body", data, b"")),
            "max-body": given.need("max-body", U32),
            "redirects": given.take("redirects", U8, 0),
        }
        given.end()
        return {kind: {key: part for key, part in found.items() if part is not None}}
    if kind == "connect":
        given = Table(it, where)
        found = {"to": given.need("to", text), "tls": given.take("tls", _given_tls)}
        given.end()
        return {kind: {key: part for key, part in found.items() if part is not None}}
    if kind == "send":
        return {kind: written(data(it, where))}
    if kind == "receive":
        return {kind: U32(it, where)}
    if kind == "shell":
        return {kind: text(it, where)}
    if kind == "argv":
        return {kind: TEXTS(it, where)}
    raise CaseError(f"{path}: unknown step `{kind}`")


def _given_tls(value: Any, path: str) -> dict[str, Any]:
    given = Table(value, path)
    found = {"server-name": given.need("server-name", text), "verify": given.need("verify", flag)}
    given.end()
    return found


def _given_answer(value: Any, path: str) -> tuple[str, Any]:
    kind, it = one_of(value, path)
    where = f"{path}.{kind}"
    if kind == "http":
        given = Table(it, where)
        response = kit.HttpResponse(
            given.need("status", U16),
            given.take("headers", TEXT_PAIRS, []),
            given.take("body", data, b""),
            given.take("elapsed-millis", U64, 1),
        )
        given.end()
        return kind, response
    if kind == "ran":
        given = Table(it, where)
        output = kit.CommandOutput(
            given.need("exit-code", I32), given.take("stdout", data, b""), given.take("stderr", data, b"")
        )
        given.end()
        return kind, output
    if kind == "connected":
        return kind, U64(it, where)
    if kind == "sent":
        return kind, flag(it, where)
    if kind == "received":
        return kind, data(it, where)
    if kind == "error":
        return kind, _error(it, where)
    raise CaseError(f"{path}: unknown answer `{kind}`")


def _error(value: Any, path: str) -> kit.IoError:
    """`"refused"`, or `{ kind = "tls", message = "…" }`."""
    message = "from the self-test"
    if isinstance(value, dict):
        kind = text(value.get("kind"), f"{path}.kind")
        message = text(value.get("message"), f"{path}.message")
    else:
        kind = text(value, path)
    if kind not in _ERRORS:
        raise CaseError(f"{path}: unknown error `{kind}`, expected one of {', '.join(_ERRORS)}")
    return kit.IoError(kind, message if kind in _DETAILED else "")  # type: ignore[arg-type]


def _expected(value: Any, path: str) -> dict[str, Any]:
    kind, it = one_of(value, path)
    where = f"{path}.{kind}"
    if kind == "http":
        U16(it, where)
    elif kind == "tcp":
        flag(it, where)
    elif kind == "command":
        I32(it, where)
    elif kind == "failed":
        if it not in _REASONS:
            raise CaseError(f"{where}: found {show(it)}, expected one of {', '.join(_REASONS)}")
    elif kind != "custom":
        raise CaseError(f"{path}: unknown result `{kind}`")
    return {kind: it}


def _outcome(previous: dict[str, Any]) -> kit.Outcome:
    [(kind, it)] = previous.items()
    made: dict[str, Any] = {"http": kit.HttpStatus, "tcp": kit.Tcp, "command": kit.ExitCode}
    found: kit.Outcome = made[kind](it) if kind in made else it
    return found


def _port(value: Any, path: str) -> kit.Port:
    given = Table(value, path)
    found = kit.Port(given.text("name"), given.need("protocol", text), given.need("endpoint", _endpoint))
    given.end()
    return found


def _endpoint(value: Any, path: str) -> kit.Endpoint:
    host, colon, port = text(value, path).rpartition(":")
    digits = port.removeprefix("+")
    if not colon or not (digits.isascii() and digits.isdigit()) or int(digits) > 65_535:
        raise CaseError(f'`endpoint` is {json.dumps(value)}; expected "host:port"')
    return kit.Endpoint(host.strip("[]"), int(digits))
