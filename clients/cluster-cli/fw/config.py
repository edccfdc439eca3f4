"""The keys of the configuration file that concern `fw`.

`[master]` has `address`, or `[master.zookeeper]` with `addresses` and `path`; `principal`, `secret`
and `ssl_verify`. `[fw.NAME]` or `[m3s.NAME]` has `principal`, `secret` and `ssl_verify` of the
framework with that name; `[fw]` or `[m3s]` those of every other framework. Other keys belong to the
published program. `ssl_verify` is false by default, as it is there.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Callable, NamedTuple

from .errors import CommandError

#: The sections of frameworks; in every case the first one wins.
SECTIONS = ("fw", "m3s")
#: The variables that name the file; the first one that is set wins.
VARIABLES = ("CLUSTER_CLI_CONFIG", "MESOS_CLI_CONFIG")


class Login(NamedTuple):
    """A server's credentials, whether its certificate is verified, and the section of these settings."""

    credentials: tuple[str, str] | None
    verify: bool
    section: str


class Settings:
    """The configuration file."""

    def __init__(self, data: dict[str, Any], path: str, leader: Callable[[], str] | None = None):
        """`leader` finds the leading master's address; without it, this class does."""
        self.data = data
        self.path = path
        self._leader = leader

    @classmethod
    def read(cls) -> Settings:
        """Reads the file that the environment names, for use without the published program."""
        try:
            import tomllib
        except ImportError:
            raise CommandError("this needs Python 3.11 or later, or the published program") from None
        path = next(filter(None, map(os.environ.get, VARIABLES)), None)
        path = path or os.path.expanduser("~/.mesos/config.toml")
        try:
            with open(path, "rb") as file:
                return cls(tomllib.load(file), path)
        except OSError as error:
            raise CommandError(f"cannot read {path}: {error.strerror}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CommandError(f"{path} is not TOML: {error}") from None

    def _fail(self, text: str) -> CommandError:
        return CommandError(f"{self.path}: {text}")

    def _master(self) -> dict[str, Any]:
        section = self.data.get("master")
        if not isinstance(section, dict):
            raise self._fail(
                'there is no section [master]: add it with the key `address`, for example address = "10.0.0.1:5050"'
            )
        return section

    def master(self) -> str:
        """The URL of the leading master, or of one that redirects to it."""
        section = self._master()
        if "address" not in section and "zookeeper" not in section:
            raise self._fail("[master] has no key `address`, and there is no [master.zookeeper]")
        address = self._leader() if self._leader else self._find_leader(section)
        return address if "://" in address else f"http://{address}"

    def _find_leader(self, section: dict[str, Any]) -> str:
        address = section.get("address")
        if isinstance(address, str):
            return address
        if address is not None:
            raise self._fail("`address` in [master] is not a string")
        zookeeper = section["zookeeper"]
        if not isinstance(zookeeper, dict):
            raise self._fail("`zookeeper` in [master] is not a table")
        addresses, path = zookeeper.get("addresses"), zookeeper.get("path")
        if not isinstance(addresses, list) or not addresses or not isinstance(path, str):
            raise self._fail("[master.zookeeper] needs `addresses`, a list of HOST:PORT, and `path`")
        return leader_in_zookeeper(",".join(map(str, addresses)), path)

    def master_login(self) -> Login:
        """Credentials for the master."""
        section = self._master()
        verify = self._switch(section, "master")
        return Login(self._credentials(section, "master"), bool(verify), "master")

    def names(self, framework: str) -> bool:
        """Whether there is a section for the framework of this name."""
        return any(self._own(section, framework) is not None for section in SECTIONS)

    def _own(self, section: str, framework: str) -> dict[str, Any] | None:
        table = self.data.get(section)
        own = table.get(framework) if isinstance(table, dict) else None
        return own if isinstance(own, dict) else None

    def login(self, framework: str) -> Login:
        """Credentials for the API of the framework of this name."""
        own = [(f"{section}.{key(framework)}", self._own(section, framework)) for section in SECTIONS]
        common = [(section, self.data.get(section)) for section in SECTIONS]
        credentials, verify, used = None, None, own[0][0]
        for name, table in own + common:
            if not isinstance(table, dict):
                continue
            if credentials is None:
                credentials = self._credentials(table, name)
                used = name if credentials else used
            if verify is None:
                verify = self._switch(table, name)
        return Login(credentials, bool(verify), used)

    def _credentials(self, table: dict[str, Any], section: str) -> tuple[str, str] | None:
        # In [fw], a table under one of these keys belongs to a framework of that name.
        found = {it: table[it] for it in ("principal", "secret") if not isinstance(table.get(it, {}), dict)}
        if not found:
            return None
        for name in ("principal", "secret"):
            if not isinstance(found.get(name), str):
                raise self._fail(f"[{section}] needs `principal` and `secret`; `{name}` is missing or not a string")
        return found["principal"], found["secret"]

    def _switch(self, table: dict[str, Any], section: str) -> bool | None:
        value = table.get("ssl_verify")
        if value is None or isinstance(value, (bool, dict)):
            return value if isinstance(value, bool) else None
        raise self._fail(f"`ssl_verify` in [{section}] is neither true nor false")


def key(name: str) -> str:
    """A name in the form of a TOML key."""
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else json.dumps(name)


def leader_in_zookeeper(hosts: str, path: str) -> str:
    """The address of the master that registered first."""
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise CommandError("masters in ZooKeeper need the package kazoo: pip install kazoo") from None
    client = KazooClient(hosts=hosts)
    try:
        client.start(timeout=15)
        names = sorted(name for name in client.get_children(path) if name.startswith("json.info"))
        if not names:
            raise CommandError(f"no master has registered at {path} in ZooKeeper {hosts}")
        content, _ = client.get(f"{path}/{names[0]}")
        address = json.loads(content)["address"]
        return f"{address['ip']}:{address['port']}"
    except (KazooException, KazooTimeoutError, ValueError, KeyError, TypeError) as error:
        raise CommandError(f"ZooKeeper {hosts} names no leading master: {error!r}") from None
    finally:
        client.stop()
        client.close()
