"""Files of cases, and the configuration in a manifest."""

from __future__ import annotations

import datetime
import json
import math
import tomllib
from pathlib import Path
from typing import Any

#: Cases of one file.
MAX_CASES = 1000


class CasesError(Exception):
    """A file has no valid cases; the text names the place and the expected value."""


def read_cases(path: str | Path) -> list[dict[str, Any]]:
    """The cases of a file: `NAME.toml` or `NAME.json`."""
    path = Path(path)
    text = path.read_text("utf-8")
    try:
        if path.suffix == ".json":
            cases = _from_json(text)
        elif path.suffix == ".toml":
            cases = _from_toml(text)
        else:
            raise CasesError("expected NAME.toml or NAME.json")
        if not 1 <= len(cases) <= MAX_CASES:
            raise CasesError(f"{len(cases)} cases; expected 1 to {MAX_CASES}")
        for case in cases:
            if not isinstance(case, dict):
                raise CasesError(f"expected an object for each case, found {json.dumps(case)}")
    except CasesError as error:
        raise CasesError(f"{path}: {error}") from None
    return cases


def config_of(manifest: str | Path) -> dict[str, Any]:
    """The `[config]` of a manifest; empty if it has none."""
    text = Path(manifest).read_text("utf-8")
    try:
        config = plain(tomllib.loads(text).get("config", {}))
    except (tomllib.TOMLDecodeError, CasesError) as error:
        raise CasesError(f"{manifest}: {error}") from None
    if not isinstance(config, dict):
        raise CasesError(f"{manifest}: `config` is not a table")
    return config


def plain(value: Any) -> Any:
    """A TOML value as JSON; dates become texts."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        raise CasesError(f"found {value}; expected a finite number")
    return value


def _from_toml(text: str) -> list[Any]:
    try:
        members = plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise CasesError(str(error)) from None
    cases = members.pop("case", None)
    if members or not isinstance(cases, list):
        found = ", ".join(f"`{key}`" for key in members) or "none of them"
        raise CasesError(f"expected [[case]] tables and nothing else, found {found}")
    return cases


def _from_json(text: str) -> list[Any]:
    try:
        cases = json.loads(text)
    except json.JSONDecodeError as error:
        raise CasesError(str(error)) from None
    if not isinstance(cases, list):
        raise CasesError("expected a list of objects, found another document")
    return cases
