"""The frameworks that the leading master lists, and requests to the API of one."""

from __future__ import annotations

import contextlib
import json
import sys
from typing import NamedTuple
from urllib.parse import urlsplit

from . import exchange
from .config import Login, Settings
from .errors import CommandError

#: Parts of the names of Kubernetes frameworks, in lower case.
NAME_PARTS = ("fw", "m3s")
PREFIX = "/api/fw/v0"
#: Maximum characters of an error's body in a message.
MAX_MESSAGE = 500


class Framework(NamedTuple):
    """A framework as the master lists it; `webui_url` is the address of its API."""

    id: str
    name: str
    active: bool
    webui_url: str


def shown(text: str) -> str:
    """Makes a text safe for a terminal: hidden characters are written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Cluster:
    """The frameworks of a cluster."""

    def __init__(self, settings: Settings, timeout: float):
        self.settings = settings
        self.timeout = timeout
        self._warned: set[str] = set()

    def send(self, method: str, url: str, login: Login, server: str) -> exchange.Answer:
        """Sends a request. Warns once about each server whose certificate is not verified."""
        if urlsplit(url).scheme == "https" and not login.verify and server not in self._warned:
            self._warned.add(server)
            print(
                f"warning: the TLS certificate of {server} is not verified; `ssl_verify = true` in"
                f" [{login.section}] of {self.settings.path} verifies it",
                file=sys.stderr,
            )
        return exchange.send(method, url, login.credentials, login.verify, self.timeout)

    def frameworks(self) -> list[Framework]:
        """All frameworks that the master lists; entries without an id are skipped."""
        url = f"{self.settings.master().rstrip('/')}/master/frameworks/"
        login = self.settings.master_login()
        try:
            answer = self.send("GET", url, login, "the master")
        except exchange.Unreachable as error:
            raise CommandError(f"the master cannot be reached: {error}") from None
        if answer.status == 401:
            raise CommandError(
                f"the master answered 401: check `principal` and `secret` in [master] of {self.settings.path}"
            )
        if answer.status != 200:
            raise CommandError(f"the master at {url} answered {answer.status} {answer.reason}{_message(answer.text)}")
        try:
            listed = json.loads(answer.text)["frameworks"]
            entries = [entry for entry in listed if isinstance(entry, dict) and isinstance(entry.get("id"), str)]
        except (ValueError, KeyError, TypeError):
            raise CommandError(
                f"{url} did not return a list of frameworks: is `address` in [master] a master?"
            ) from None
        return [
            Framework(
                entry["id"],
                str(entry.get("name") or ""),
                entry.get("active") is True,
                str(entry.get("webui_url") or ""),
            )
            for entry in entries
        ]

    def is_ours(self, framework: Framework) -> bool:
        """Whether `list` shows this framework."""
        name = framework.name.lower()
        return any(part in name for part in NAME_PARTS) or self.settings.names(framework.name)

    def choose(self, wanted: str) -> Framework:
        """The framework with this id or name. Of several with one name, the only active one."""
        listed = self.frameworks()
        for framework in listed:
            if framework.id == wanted:
                return framework
        named = [framework for framework in listed if framework.name == wanted]
        named = [framework for framework in named if framework.active] or named
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(framework.id for framework in named[:20])
            raise CommandError(
                f"{len(named)} frameworks have the name '{shown(wanted)}'; give the id of one of them: {shown(ids)}"
            )
        ours = ", ".join(framework.name for framework in listed if self.is_ours(framework)) or "none of this kind"
        raise CommandError(
            f"the master lists no framework with the id or name '{shown(wanted)}'; registered: {shown(ours)}"
        )

    def api(self, wanted: str) -> Api:
        """The API of a framework."""
        framework = self.choose(wanted)
        if urlsplit(framework.webui_url).scheme not in ("http", "https"):
            raise CommandError(
                f"the framework '{shown(framework.name)}' has registered '{shown(framework.webui_url)}' as its"
                " webui_url, which is not an http(s) URL"
            )
        return Api(self, framework, self.settings.login(framework.name))


class Api:
    """The API of one framework."""

    def __init__(self, cluster: Cluster, framework: Framework, login: Login):
        self.cluster = cluster
        self.name = shown(framework.name)
        self.url = framework.webui_url.split("?")[0].split("#")[0].rstrip("/")
        self.login = login

    def send(self, method: str, path: str) -> str:
        """Returns the body of a successful response; raises an error for every other one."""
        server = f"the framework '{self.name}'"
        try:
            answer = self.cluster.send(method, f"{self.url}{PREFIX}/{path}", self.login, server)
        except exchange.Unreachable as error:
            raise CommandError(
                f"{server} cannot be reached at the address that it registered with the master: {error}"
            ) from None
        if 200 <= answer.status < 300:
            return answer.text
        raise CommandError(
            f"{server} at {self.url} answered {method} {PREFIX}/{path} with {answer.status} {answer.reason}"
            f"{_message(answer.text)}{self._advice(answer)}"
        )

    def _advice(self, answer: exchange.Answer) -> str:
        section, file = self.login.section, self.cluster.settings.path
        if answer.status == 401 and self.login.credentials:
            return (
                f"\n`principal` and `secret` in [{section}] of {file} are not AUTH_USERNAME and AUTH_PASSWORD of this"
                " framework"
            )
        if answer.status == 401:
            return (
                f"\nIt requires credentials: add the section [{section}] to {file}, with AUTH_USERNAME of this"
                " framework as `principal` and its AUTH_PASSWORD as `secret`"
            )
        if answer.status == 404:
            return "\nIts API does not have this path: is it a framework of this kind, and of this version"
        if answer.status == 503:
            after = answer.headers.get("Retry-After", "")
            return f"\nIt is not ready: try again {f'in {after} s' if after.isdigit() else 'soon'}"
        return ""


def _message(text: str) -> str:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text)["message"]
    text = shown(str(text).strip()[:MAX_MESSAGE])
    return f": {text}" if text else ""
