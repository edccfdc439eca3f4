"""The plugin's log: one line each, without a line break at its end.

In a component the host writes the lines. Elsewhere they go to Python's ``logging``, to the
logger ``transom_plugin``.
"""

import logging
from collections.abc import Callable

Sink = Callable[[str, str], None]

#: A level below ``DEBUG``, which Python does not define.
_LEVELS = {"trace": 5, "debug": 10, "info": 20, "warn": 30, "error": 40}


def _native(level: str, message: str) -> None:
    logging.getLogger("transom_plugin").log(_LEVELS[level], "%s", message)


_sink: Sink = _native


def trace(message: str) -> None:
    """Writes a line of the level `trace`."""
    _sink("trace", message)


def debug(message: str) -> None:
    """Writes a line of the level `debug`."""
    _sink("debug", message)


def info(message: str) -> None:
    """Writes a line of the level `info`."""
    _sink("info", message)


def warn(message: str) -> None:
    """Writes a line of the level `warn`."""
    _sink("warn", message)


def error(message: str) -> None:
    """Writes a line of the level `error`."""
    _sink("error", message)
