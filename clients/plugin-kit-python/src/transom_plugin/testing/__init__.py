"""Runs recorded cases on a plugin's class, without a daemon and without WebAssembly.

Cases are those of ``transom plugin test``: a file of ``[[case]]`` tables, or the JSON file that
``transom plugin cases`` writes. They are read, run and compared as by ``transom plugin test``, each on
a new plugin, but without the sandbox and its limits.

In a test of pytest::

    from app import Quiet
    from transom_plugin.testing import check

    def test_cases():
        check(Quiet, "cases.toml", manifest="quiet.toml")

or from the command line::

    python -m transom_plugin.testing src/app.py cases.toml --manifest quiet.toml

One case, as a value:

>>> from transom_plugin.events import DROP, PASS, Filter
>>> class Quiet(Filter):
...     def open(self, query):
...         return lambda event: DROP if (event.subject or "").startswith("/load/") else PASS
>>> case = {"events": [{"kind": "a", "subject": "/load/x"}, {"kind": "a"}], "expect": ["drop", "drop"]}
>>> [report] = run(Quiet, [case])
>>> report.verdict, report.found, report.reason
('differs', {'expect': ['drop', 'pass']}, 'found ["drop", "pass"], expected ["drop", "drop"]')
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transom_plugin.plugin import InvalidConfig, Plugin
from transom_plugin.testing import bootstrap, events, matcher, probe
from transom_plugin.testing.files import CasesError, config_of, read_cases
from transom_plugin.testing.forms import Answer, CaseError, Fault, Prepared, same

__all__ = ["CasesError", "Report", "check", "config_of", "read_cases", "run"]

_WORLDS: dict[str, Callable[[Any], Prepared]] = {
    "check-probe": probe.prepare,
    "attribute-matcher": matcher.prepare,
    "event-filter": events.prepare,
    "bootstrap-handler": bootstrap.prepare,
}


@dataclass(frozen=True)
class Report:
    """The result of one case."""

    #: Its name, or `case` and its number.
    name: str
    #: `failed`: a fault of the plugin, or an error in the case, prevented an answer.
    verdict: Literal["passed", "differs", "failed"]
    #: The answer, as keys of a case.
    found: Answer | None = None
    #: The expected answer, as keys of a case. None: the case has none, or is invalid.
    expected: Answer | None = None
    #: One line for people; None if it passed.
    reason: str | None = None


def run(
    plugin: type[Plugin],
    cases: str | Path | Sequence[Mapping[str, Any]],
    *,
    config: Mapping[str, Any] | None = None,
    manifest: str | Path | None = None,
) -> list[Report]:
    """Runs the cases of a file, or a list of cases, in their order.

    The plugin receives the ``[config]`` of the manifest, or ``config``. It is not validated with the
    plugin's schema; the host does that. Raises :class:`CasesError` for an invalid file, and
    :class:`transom_plugin.InvalidConfig`.
    """
    if config is not None and manifest is not None:
        raise TypeError("expected only one of `config` and `manifest`")
    if isinstance(cases, str | Path):
        cases = read_cases(cases)
    document = dict(config or {}) if manifest is None else config_of(manifest)
    return [_one(plugin, document, case, number) for number, case in enumerate(cases, 1)]


def check(
    plugin: type[Plugin],
    cases: str | Path | Sequence[Mapping[str, Any]],
    *,
    config: Mapping[str, Any] | None = None,
    manifest: str | Path | None = None,
) -> None:
    """Runs cases, and raises :class:`AssertionError` with the reasons if one of them does not pass."""
    reports = run(plugin, cases, config=config, manifest=manifest)
    wrong = [f"{it.name}: {it.reason}" for it in reports if it.verdict != "passed"]
    if wrong:
        raise AssertionError(f"{len(wrong)} of {len(reports)} cases failed\n" + "\n".join(wrong))


def _one(plugin: type[Plugin], config: dict[str, Any], given: Mapping[str, Any], number: int) -> Report:
    case = dict(given)
    name = case.pop("name", None)
    if not isinstance(name, str):
        name = f"case {number}"
    expected = None
    try:
        prepared = _WORLDS[plugin.world](case)
        expected = prepared.expected
        # A copy, so that a plugin cannot change the configuration of the next one.
        found = prepared.answer(plugin.configured(json.loads(json.dumps(config))))
    except InvalidConfig:
        raise
    except (CaseError, Fault) as error:
        return Report(name, "failed", None, expected, str(error))
    except Exception as error:
        return Report(name, "failed", None, expected, f"{type(error).__name__}: {error}")
    if expected is None:
        reason = f"found {_text(found)}, but the case has no expectation"
        return Report(name, "differs", found, None, reason)
    if same(found, expected):
        return Report(name, "passed", found, expected)
    return Report(name, "differs", found, expected, f"found {_text(found)}, expected {_text(expected)}")


def _text(answer: Answer) -> str:
    return json.dumps(answer["expect"] if list(answer) == ["expect"] else answer)
