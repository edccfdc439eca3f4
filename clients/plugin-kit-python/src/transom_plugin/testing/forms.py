"""Functions for the cases of all worlds: strict parsing, and the comparison of answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

#: The keys `expect` and `refused`.
Answer: TypeAlias = dict[str, Any]

#: The mask that replaces a secret in recorded calls.
MASK = "*" * 8


class CaseError(Exception):
    """A mistake in a case."""


class Fault(Exception):
    """The plugin violated the interface, or its attempt does not fit the case."""


@dataclass(frozen=True)
class Prepared:
    """A parsed case: a function that calls a plugin, and the expected answer."""

    answer: Callable[[Any], Answer]
    expected: Answer | None


class Table:
    """The keys of a case, read one by one; :meth:`end` rejects the others.

    >>> table = Table({"path": "/", "x": 1}, "case")
    >>> table.text("path")
    '/'
    >>> table.end()
    Traceback (most recent call last):
        ...
    transom_plugin.testing.forms.CaseError: case: unknown field `x`, expected `path`
    """

    def __init__(self, value: Any, path: str) -> None:
        if not isinstance(value, dict):
            raise CaseError(f"{path}: found {show(value)}, expected a table")
        self._left = dict(value)
        self._known: list[str] = []
        self._path = path

    def take(self, key: str, read: Callable[[Any, str], T], default: Any = None) -> Any:
        """Returns the value of a key that may be missing."""
        self._known.append(key)
        if key not in self._left:
            return default
        return read(self._left.pop(key), f"{self._path}.{key}")

    def need(self, key: str, read: Callable[[Any, str], T]) -> T:
        """Returns the value of a required key."""
        if key not in self._left:
            raise CaseError(f"{self._path}: missing field `{key}`")
        found: T = self.take(key, read)
        return found

    def text(self, key: str, default: str | None = None) -> Any:
        """A text."""
        return self.take(key, text, default)

    def end(self) -> None:
        """Rejects all keys that were not read."""
        for key in self._left:
            known = ", ".join(f"`{it}`" for it in self._known)
            raise CaseError(f"{self._path}: unknown field `{key}`, expected {known}")


def one_of(value: Any, path: str) -> tuple[str, Any]:
    """Key and value of a table with one key."""
    if not isinstance(value, dict) or len(value) != 1:
        raise CaseError(f"{path}: found {show(value)}, expected a table with one key")
    [(key, item)] = value.items()
    return key, item


def text(value: Any, path: str) -> str:
    if not isinstance(value, str):
        raise CaseError(f"{path}: found {show(value)}, expected a string")
    return value


def flag(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise CaseError(f"{path}: found {show(value)}, expected true or false")
    return value


def integer(least: int, most: int) -> Callable[[Any, str], int]:
    """An integer within these bounds."""

    def read(value: Any, path: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise CaseError(f"{path}: found {show(value)}, expected an integer from {least} to {most}")
        return value

    return read


U8 = integer(0, 2**8 - 1)
U16 = integer(0, 2**16 - 1)
U32 = integer(0, 2**32 - 1)
U64 = integer(0, 2**64 - 1)
I32 = integer(-(2**31), 2**31 - 1)
COUNT = integer(1, 2**32 - 1)


def items(read: Callable[[Any, str], T]) -> Callable[[Any, str], list[T]]:
    """A list."""

    def all_of(value: Any, path: str) -> list[T]:
        if not isinstance(value, list):
            raise CaseError(f"{path}: found {show(value)}, expected a list")
        return [read(item, f"{path}[{index}]") for index, item in enumerate(value)]

    return all_of


def pair(first: Callable[[Any, str], Any], second: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    """A list of two."""

    def both(value: Any, path: str) -> tuple[Any, Any]:
        if not isinstance(value, list) or len(value) != 2:
            raise CaseError(f"{path}: found {show(value)}, expected two values")
        return first(value[0], path), second(value[1], path)

    return both


TEXTS = items(text)
TEXT_PAIRS = items(pair(text, text))


def named(read: Callable[[Any, str], T]) -> Callable[[Any, str], list[tuple[str, T]]]:
    """Named values: a table, in the order of its keys, or a list of pairs."""
    listed = items(pair(text, read))

    def pairs(value: Any, path: str) -> list[tuple[str, T]]:
        if isinstance(value, dict):
            return [(key, read(value[key], f"{path}.{key}")) for key in sorted(value)]
        return listed(value, path)

    return pairs


def data(value: Any, path: str) -> bytes:
    """Bytes: a text, or `{ hex = "…" }`."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["hex"]:
        digits = text(value["hex"], f"{path}.hex")
        if len(digits) % 2 == 0 and all(it in "0123456789abcdefABCDEF" for it in digits):
            return bytes.fromhex(digits)
        raise CaseError(f"`hex` is {json.dumps(digits)}; expected two hexadecimal digits for each byte")
    raise CaseError(f"{path}: found {show(value)}, expected a string or {{ hex = … }}")


def written(found: bytes) -> Any:
    """Bytes in the form of a case."""
    try:
        return found.decode()
    except UnicodeDecodeError:
        return {"hex": found.hex()}


def table(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CaseError(f"{path}: found {show(value)}, expected a table")
    return value


def same(found: Any, expected: Any) -> bool:
    """Whether two JSON values are equal; unlike in Python `1`, `1.0` and `true` differ.

    >>> same({"a": [1]}, {"a": [1]}), same(1, True), same(1, 1.0)
    (True, False, False)
    """
    if isinstance(expected, dict):
        return (
            isinstance(found, dict)
            and found.keys() == expected.keys()
            and all(same(found[key], value) for key, value in expected.items())
        )
    if isinstance(expected, list):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(same(one, other) for one, other in zip(found, expected, strict=True))
        )
    return type(found) is type(expected) and bool(found == expected)


def same_but_for_masks(recorded: Any, found: Any) -> bool:
    """Whether a value equals the recorded one, in which a mask stands for any text.

    >>> same_but_for_masks({"a": "key=********!"}, {"a": "key=hunter2!"})
    True
    """
    if isinstance(recorded, str) and MASK in recorded:
        if recorded == MASK:
            return True
        return isinstance(found, str) and _fits(recorded, found)
    if isinstance(recorded, dict):
        return (
            isinstance(found, dict)
            and found.keys() == recorded.keys()
            and all(same_but_for_masks(value, found[key]) for key, value in recorded.items())
        )
    if isinstance(recorded, list):
        return (
            isinstance(found, list)
            and len(found) == len(recorded)
            and all(same_but_for_masks(one, other) for one, other in zip(recorded, found, strict=True))
        )
    return same(found, recorded)


def _fits(recorded: str, found: str) -> bool:
    first, *middle, last = recorded.split(MASK)
    if not found.startswith(first) or not found[len(first) :].endswith(last):
        return False
    rest = found[len(first) :].removesuffix(last)
    for part in middle:
        _, there, rest = rest.partition(part) if part else ("", "-", rest)
        if not there:
            return False
    return True


def show(value: Any) -> str:
    """A value in a message."""
    found = json.dumps(value, default=str)
    return found if len(found) <= 200 else found[:200] + " ..."


def json_object(given: str) -> Any:
    """Parses a text as a JSON object; None if it is not one."""
    try:
        found = json.loads(given)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None
