"""The kit itself: its examples, its conversions, and how `attempt` reports wrong probes.

Run `python -m unittest discover -s tests` where `transom_plugin` is installed.
"""

import doctest
import importlib
import pkgutil
import unittest

import transom_plugin
from transom_plugin import InvalidConfig, Plugin, export
from transom_plugin.bootstrap import Bootstrap
from transom_plugin.events import Filter
from transom_plugin.matcher import Agent
from transom_plugin.probe import (
    CommandOutput,
    Connect,
    Endpoint,
    ExitCode,
    HttpStatus,
    IoError,
    Probe,
    Request,
    Run,
    Shell,
    Tcp,
)
from transom_plugin.testing import attempt


def load_tests(loader, tests, pattern):
    """Runs the examples in docstrings."""
    packages = pkgutil.walk_packages(transom_plugin.__path__, "transom_plugin.")
    names = ["transom_plugin", *(it.name for it in packages)]
    examples = 0
    for name in names:
        found = doctest.DocTestSuite(importlib.import_module(name))
        examples += found.countTestCases()
        tests.addTests(found)
    assert examples > 10, f"found {examples} examples only"
    return tests


class Nothing:
    name, version, summary = "a", "0.1.0", "b"


class Kit(unittest.TestCase):
    def test_unexpected_steps_and_results_fail(self):
        class Looks(Nothing, Probe):
            def attempt(self, request):
                if request.path == "/status":
                    return HttpStatus(99)
                if request.path == "/large":
                    return {"a": "x" * 4096}
                if request.path == "/text":
                    return "no outcome"
                yield Shell("true")
                return ExitCode(0)

        for path, exchanges, expected in [
            ("/status", [], "HTTP status 99"),
            ("/large", [], "4105 bytes, expected at most 4096"),
            ("/text", [], "expected a step or a result"),
            ("/", [], "found Shell.line='true'., expected a result"),
            ("/", [(Run(["true"]), None)], "step 1: found Shell.*, expected Run"),
            ("/status", [(Shell("true"), None)], "step 1: found HttpStatus"),
        ]:
            with self.subTest(path), self.assertRaisesRegex(AssertionError, expected):
                attempt(Looks({}), Request(path=path), exchanges)

    def test_attempt_may_handle_an_error(self):
        class Handles(Nothing, Probe):
            def attempt(self, request):
                try:
                    yield Connect(request.endpoint)
                except IoError as error:
                    if error.kind == "tls":
                        raise
                    return Tcp(error.kind != "refused")
                output = yield Run(["true"])
                return ExitCode(output.exit_code)

        there = Endpoint("a", 1)
        for exchanges, expected in [
            ([(Connect(there), IoError("refused"))], Tcp(False)),
            ([(Connect(there), 1), (Run(["true"]), CommandOutput(3))], ExitCode(3)),
        ]:
            self.assertEqual(attempt(Handles({}), Request(endpoint=there), exchanges), expected)
        self.assertEqual(attempt(Handles({}), Request()).reason, "invalid")
        unverified = attempt(Handles({}), Request(endpoint=there), [(Connect(there), IoError("tls"))])
        self.assertEqual(unverified.reason, "invalid")

    def test_configuration_is_passed_and_rejected(self):
        class Takes(Nothing, Bootstrap):
            schema = {"type": "object"}  # noqa: RUF012

            def __init__(self, config):
                if "wrong" in config:
                    raise InvalidConfig("/wrong", "expected nothing")

        with self.assertRaisesRegex(InvalidConfig, "/wrong: expected nothing"):
            Takes.configured({"wrong": 1})

        class TakesNone(Nothing, Filter):
            pass

        with self.assertRaisesRegex(InvalidConfig, "expected no configuration"):
            TakesNone.configured({"a": 1})

    def test_classes_that_are_no_plugins_are_rejected(self):
        with self.assertRaisesRegex(TypeError, "has no world"):
            export(Plugin)

        class Nameless(Filter):
            pass

        with self.assertRaisesRegex(TypeError, "has no `name`"):
            export(Nameless)

    def test_attributes_have_the_text_of_a_constraint(self):
        for value, expected in [
            ("a", "a"),
            (8.0, "8"),
            (0.5, "0.5"),
            (1e21, "1000000000000000000000"),
            (((1, 2),), None),
            (frozenset("a"), None),
        ]:
            self.assertEqual(Agent(1, "S1", "a", [("x", value)]).text("x"), expected)
        self.assertIsNone(Agent(1, "S1", "a").text("x"))


if __name__ == "__main__":
    unittest.main()
