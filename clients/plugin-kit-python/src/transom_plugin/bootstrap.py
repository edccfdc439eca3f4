"""``bootstrap-handler``: prepares the first script of a container of the Kubernetes framework.

>>> class Says(Bootstrap):
...     name, version, summary = "says", "0.1.0", "an example"
...
...     def prepare(self, context, script):
...         if not script:
...             raise Refused("there is no script to run")
...         return Prepared(b"echo hello\\n" + script, context.environment, context.arguments)
>>> Says({}).prepare(Context("agent", "fw"), b"exec run").script
b'echo hello\\nexec run'
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from transom_plugin.plugin import Plugin, Refused

__all__ = ["Bootstrap", "Context", "Pairs", "Prepared", "Refused", "Role"]

Role: TypeAlias = Literal["server", "agent", "datastore"]
#: Names and values, in order.
Pairs: TypeAlias = list[tuple[str, str]]


@dataclass(frozen=True)
class Context:
    """The container that the script is prepared for. It contains no secrets."""

    role: Role
    framework: str
    task: str = ""
    #: 0 for the first container of its role.
    number: int = 0
    #: Empty if the script is prepared before there is an offer; this is also true of `attributes`.
    host: str = ""
    attributes: Pairs = field(default_factory=list)
    image: str = ""
    #: Host port and container port; the host port is 0 before there is an offer.
    ports: list[tuple[int, int]] = field(default_factory=list)
    source: str = ""
    #: Lower-case hexadecimal SHA-256 of the script.
    digest: str = ""
    environment: Pairs = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    extensions: Pairs = field(default_factory=list)


@dataclass(frozen=True)
class Prepared:
    """The prepared script, environment and arguments, which replace all those of the request."""

    script: bytes
    environment: Pairs
    arguments: list[str]


class Bootstrap(Plugin):
    """A plugin of the world ``bootstrap-handler``."""

    world: ClassVar[str] = "bootstrap-handler"

    def prepare(self, context: Context, script: bytes) -> Prepared:
        """Prepares a container. The same arguments must always have the same result.

        If it raises :class:`Refused`, the container is not started.
        """
        raise NotImplementedError
