"""Cases of `bootstrap-handler`: a container's script, and the prepared one."""

from __future__ import annotations

import hashlib
from typing import Any

from transom_plugin.bootstrap import Bootstrap, Context
from transom_plugin.plugin import Refused
from transom_plugin.testing.forms import (
    TEXT_PAIRS,
    TEXTS,
    U16,
    U32,
    Answer,
    CaseError,
    Prepared,
    Table,
    data,
    flag,
    items,
    named,
    pair,
    show,
    table,
    text,
    written,
)


def prepare(case: Any) -> Prepared:
    """Reads a case."""
    given = Table(case, "case")
    script = given.need("script", data)
    context = Context(
        role=given.need("role", _role),
        framework=given.text("framework", "fw"),
        task=given.text("task", "self-test.1"),
        number=given.take("number", U32, 0),
        host=given.text("host", "localhost"),
        attributes=given.take("attributes", named(text), []),
        image=given.text("image", "self-test"),
        ports=given.take("ports", items(pair(U16, U16)), []),
        source=given.text("source", "self-test"),
        digest=hashlib.sha256(script).hexdigest(),
        environment=given.take("environment", named(text), []),
        arguments=given.take("arguments", TEXTS, []),
        extensions=given.take("extensions", TEXT_PAIRS, []),
    )
    expect = given.take("expect", _expected, {})
    refused = given.take("refused", _refused, False)
    given.end()
    expected: Answer = {"expect": expect} if refused is False else {"refused": refused}
    exact = isinstance(refused, dict)

    def answer(plugin: Bootstrap) -> Answer:
        try:
            prepared = plugin.prepare(context, script)
        except Refused as why:
            return {"refused": {"retry": why.retry} if exact else True}
        found = {
            "script": written(prepared.script),
            "environment": dict(prepared.environment),
            "arguments": list(prepared.arguments),
        }
        # Omitted keys are not compared.
        wanted = expected.get("expect")
        if wanted is not None:
            found = {key: value for key, value in found.items() if key in wanted}
        return {"expect": found}

    return Prepared(answer, expected)


def _role(value: Any, path: str) -> Any:
    if value not in ("server", "agent", "datastore"):
        raise CaseError(f"{path}: found {show(value)}, expected `server`, `agent` or `datastore`")
    return value


def _expected(value: Any, path: str) -> dict[str, Any]:
    given = Table(value, path)
    script = given.take("script", data)
    environment = given.take("environment", table)
    arguments = given.take("arguments", TEXTS)
    given.end()
    for name, it in (environment or {}).items():
        text(it, f"{path}.environment.{name}")
    found = {
        "script": None if script is None else written(script),
        "environment": environment,
        "arguments": arguments,
    }
    return {key: it for key, it in found.items() if it is not None}


def _refused(value: Any, path: str) -> Any:
    if isinstance(value, dict):
        given = Table(value, path)
        given.need("retry", flag)
        given.end()
        return value
    return flag(value, path)
