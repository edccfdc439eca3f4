from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from fw.config import Settings, key
from fw.errors import CommandError
from fw.exchange import _same_place
from fw.frameworks import Cluster, Framework, shown
from fw.plugin import COMMANDS, PLUGIN_CLASS, Fw

LOGIN = {"principal": "p", "secret": "s"}


def settings(**data: Any) -> Settings:
    return Settings(data, "/c.toml")


@pytest.mark.parametrize(
    ("data", "framework", "section", "found"),
    [
        ({"fw": {**LOGIN, "a": LOGIN}, "m3s": {"a": LOGIN}}, "a", "fw.a", True),
        ({"fw": LOGIN, "m3s": {"a": LOGIN}}, "a", "m3s.a", True),
        ({"fw": {**LOGIN, "a": LOGIN}}, "b", "fw", True),
        ({"m3s": LOGIN}, "b", "m3s", True),
        ({"fw": {"a": LOGIN}}, "b", "fw.b", False),
        ({}, "a b", 'fw."a b"', False),
        # A framework whose name is also a key.
        ({"fw": {"principal": LOGIN}}, "b", "fw.b", False),
    ],
)
def test_credentials_are_those_of_the_name_or_of_every_framework(
    data: dict[str, Any], framework: str, section: str, found: bool
) -> None:
    login = settings(**data).login(framework)
    assert (login.section, login.credentials) == (section, ("p", "s") if found else None)


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ({}, "[master]"),
        ({"master": 1}, "[master]"),
        ({"master": {}}, "`address`"),
        ({"master": {"address": 1}}, "`address`"),
        ({"master": {"zookeeper": {"addresses": [], "path": "/mesos"}}}, "`addresses`"),
    ],
)
def test_missing_master_is_reported_with_file_and_key(data: dict[str, Any], part: str) -> None:
    with pytest.raises(CommandError) as error:
        settings(**data).master()
    assert "/c.toml" in str(error.value) and part in str(error.value)


@pytest.mark.parametrize("table", [{"principal": "p"}, {"secret": "hidden"}, {"principal": 1, "secret": "hidden"}])
def test_half_of_the_credentials_is_an_error_without_the_secret(table: dict[str, Any]) -> None:
    with pytest.raises(CommandError) as error:
        settings(fw=table).login("a")
    assert "[fw]" in str(error.value) and "hidden" not in str(error.value)


def test_certificates_are_verified_when_a_section_says_so() -> None:
    assert not settings().login("a").verify
    assert settings(fw={"ssl_verify": True}).login("a").verify
    assert not settings(fw={"ssl_verify": True, "a": {"ssl_verify": False}}).login("a").verify
    with pytest.raises(CommandError):
        settings(fw={"ssl_verify": "no"}).login("a")


def test_framework_is_ours_by_name_or_section() -> None:
    cluster = Cluster(settings(fw={"prod": {}, "principal": "p"}), 1)
    ours = [cluster.is_ours(Framework("1", name, True, "")) for name in ("myFW", "M3S", "prod", "principal", "")]
    assert ours == [True, True, True, False, False]


@pytest.mark.parametrize(
    ("location", "followed"),
    [
        ("http://b:2/v2/x?y=1", True),
        ("//b:2/v2/x?y=1", True),
        ("https://b:2/v2/x?y=1", True),
        ("ftp://b:2/v2/x", False),
        ("http://b:2/login", False),
        ("http://a:1/v2/x", False),
    ],
)
def test_redirect_is_followed_to_the_same_path(location: str, followed: bool) -> None:
    assert (_same_place("http://a:1/v2/x", location) is not None) == followed


def test_redirect_is_not_followed_from_tls_to_none() -> None:
    assert _same_place("https://a:1/v2/x", "http://b:2/v2/x") is None


def test_keys_and_hidden_characters_are_written_readably() -> None:
    assert [key("a-b_1"), key("a b"), key("")] == ["a-b_1", '"a b"', '""']
    assert shown("a\x1b[31m") == "a\\x1b[31m"


def test_every_command_has_a_method() -> None:
    assert Fw.__name__ == PLUGIN_CLASS
    for name, command in COMMANDS.items():
        assert callable(getattr(Fw, command.get("alias", name)))
