"""The common parts of plugins of every world: description, configuration, and rejections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class ConfigError:
    """One error in a configuration.

    ``pointer``: JSON Pointer (RFC 6901) of the invalid value; empty: the whole document.
    ``message``: the expected value, for the operator.
    """

    pointer: str
    message: str


class InvalidConfig(Exception):
    """Raised by a plugin's constructor: the operator's configuration is invalid.

    >>> str(InvalidConfig("/secrets/0", "expected a pattern"))
    '/secrets/0: expected a pattern'
    """

    def __init__(self, pointer: str, message: str, more: Iterable[ConfigError] = ()) -> None:
        self.errors = [ConfigError(pointer, message), *more]
        super().__init__("; ".join(f"{it.pointer}: {it.message}" for it in self.errors))


class Refused(Exception):
    """Raised by a filter to reject a query, or by a bootstrap handler to reject a container.

    ``message`` is for people. ``retry``: whether a later call may succeed; for bootstrap handlers.
    """

    def __init__(self, message: str, retry: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.retry = retry


class Plugin:
    """The base class of the four worlds' classes.

    A component creates one object of its class, from the operator's ``[config]``. Without a ``schema``
    the plugin accepts no configuration.

    >>> class Limits(Plugin):
    ...     name, version, summary = "limits", "0.1.0", "an example"
    ...     schema = {"type": "object", "properties": {"most": {"type": "integer"}}}
    ...
    ...     def __init__(self, config):
    ...         self.most = config.get("most", 10)
    ...         if self.most < 1:
    ...             raise InvalidConfig("/most", "expected at least 1")
    >>> Limits.configured({"most": 3}).most
    3
    >>> Limits.configured({"most": 0})
    Traceback (most recent call last):
        ...
    transom_plugin.plugin.InvalidConfig: /most: expected at least 1
    """

    #: ``check-probe`` and so on; set by the base class of each world.
    world: ClassVar[str]
    #: The component's name, its version and a summary of one line for operators; each has at most
    #: 256 bytes.
    name: ClassVar[str]
    version: ClassVar[str]
    summary: ClassVar[str]
    #: JSON Schema (2020-12) of the configuration. The host validates a document with it before the
    #: plugin receives the document.
    schema: ClassVar[Mapping[str, Any] | None] = None

    def __init__(self, config: dict[str, Any]) -> None:
        """Stores the configuration; raises :class:`InvalidConfig` if it is invalid."""

    @classmethod
    def configured(cls, config: dict[str, Any]) -> Plugin:
        """Creates the plugin from a configuration, as a component does."""
        if cls.schema is None and config:
            raise InvalidConfig("", "expected no configuration")
        return cls(config)


def schema_text(plugin: type[Plugin]) -> str | None:
    """The schema as JSON."""
    return None if plugin.schema is None else json.dumps(plugin.schema)
