"""The kit itself: its examples, its conversions, and how its harness reports wrong plugins and files.

Run `python -m unittest discover -s tests` where `transom_plugin` is installed.
"""

import doctest
import importlib
import pkgutil
import tempfile
import unittest
from pathlib import Path

import transom_plugin
from transom_plugin import InvalidConfig, Plugin, export
from transom_plugin.bootstrap import Bootstrap
from transom_plugin.events import Filter
from transom_plugin.matcher import Agent, Matcher
from transom_plugin.probe import Connect, ExitCode, Http, HttpStatus, IoError, Probe, Run, Shell, Tcp
from transom_plugin.testing import CasesError, check, config_of, read_cases, run


def load_tests(loader, tests, pattern):
    """Runs the examples in docstrings."""
    packages = pkgutil.walk_packages(transom_plugin.__path__, "transom_plugin.")
    names = ["transom_plugin", *(it.name for it in packages if not it.name.endswith("__main__"))]
    examples = 0
    for name in names:
        found = doctest.DocTestSuite(importlib.import_module(name))
        examples += found.countTestCases()
        tests.addTests(found)
    assert examples > 10, f"found {examples} examples only"
    return tests


class Nothing:
    name, version, summary = "a", "0.1.0", "b"


class Harness(unittest.TestCase):
    def reason(self, plugin, case, verdict="failed"):
        [report] = run(plugin, [case])
        self.assertEqual(report.verdict, verdict, report)
        return report.reason

    def test_results_that_the_interface_forbids_are_faults(self):
        class Decides(Nothing, Filter):
            def open(self, query):
                return lambda event: ["no object"]

        self.assertIn("not a JSON object", self.reason(Decides, {"events": [{"kind": "a"}]}))

        class Places(Nothing, Matcher):
            def refusal(self, task, agent):
                return 3

            def place(self, agents, task, candidates, count):
                return [9]

            def select_kills(self, agents, task, count):
                return [0, 0]

        agents = {"agents": [{"hostname": "a"}], "placed": ["a", "a"]}
        self.assertIn("constraint 3 of 0", self.reason(Places, agents))
        self.assertIn("is not a candidate", self.reason(Places, {**agents, "place": 1}))
        self.assertIn("twice", self.reason(Places, {**agents, "kill": 2}))

        class Looks(Nothing, Probe):
            def attempt(self, request):
                if request.path == "/status":
                    return HttpStatus(99)
                if request.path == "/headers":
                    yield Http(request.endpoint, headers=[("Host", "x")])
                return "no outcome"

        self.assertIn("99 is not a valid HTTP status", self.reason(Looks, {"path": "/status"}))
        self.assertIn("expected a step or an outcome", self.reason(Looks, {}))
        asked = {"endpoint": "a:80", "path": "/headers", "answers": [{"http": {"status": 200}}]}
        self.assertIn("header host", self.reason(Looks, asked))

    def test_result_that_is_too_large_fails_the_check(self):
        class Large(Nothing, Probe):
            def attempt(self, request):
                yield Shell("true")
                return {"a": "x" * 4096}

        check(Large, [{"answers": [{"ran": {"exit-code": 0}}], "expect": {"failed": "plugin"}}])

    def test_exception_is_a_failure_and_a_plugin_is_made_for_each_case(self):
        class Counts(Nothing, Probe):
            def __init__(self, config):
                self.calls = 0

            def attempt(self, request):
                self.calls += 1
                if request.path == "/trap":
                    raise KeyError("x")
                return ExitCode(self.calls)
                yield

        case = {"expect": {"command": 1}}
        check(Counts, [case, case])
        self.assertIn("KeyError", self.reason(Counts, {"path": "/trap"}))
        with self.assertRaisesRegex(AssertionError, "1 of 2 cases failed\ncase 2: found"):
            check(Counts, [case, {"expect": {"command": 2}}])

    def test_attempt_may_handle_an_error(self):
        class Handles(Nothing, Probe):
            def attempt(self, request):
                try:
                    yield Connect(request.endpoint)
                except IoError as error:
                    return Tcp(error.kind != "refused")
                output = yield Run(["true"])
                return ExitCode(output.exit_code)

        answered = [{"connected": 1}, {"ran": {"exit-code": 3}}]
        check(
            Handles,
            [
                {"endpoint": "a:1", "answers": [{"error": "refused"}], "expect": {"tcp": False}},
                {"endpoint": "a:1", "answers": answered, "expect": {"command": 3}},
            ],
        )

    def test_configuration_is_passed_and_refused(self):
        class Takes(Nothing, Bootstrap):
            schema = {"type": "object"}  # noqa: RUF012

            def __init__(self, config):
                if "wrong" in config:
                    raise InvalidConfig("/wrong", "expected nothing")

        with self.assertRaisesRegex(InvalidConfig, "/wrong: expected nothing"):
            run(Takes, [{"role": "agent", "script": ""}], config={"wrong": 1})

        class TakesNone(Nothing, Filter):
            pass

        with self.assertRaisesRegex(InvalidConfig, "expected no configuration"):
            run(TakesNone, [{}], config={"a": 1})

    def test_wrong_files_are_rejected_with_the_expectation(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text, expected in [
                ("a.toml", "x =", "Invalid value"),
                ("b.toml", "", r"expected \[\[case\]\] tables"),
                ("c.toml", "case = 1", r"expected \[\[case\]\] tables"),
                ("d.toml", "[[case]]\n[[self-test]]\n", "found `self-test`"),
                ("e.toml", "case = []", "0 cases"),
                ("f.toml", "[[case]]\nx = nan", "finite"),
                ("g.json", "{}", "expected a list"),
                ("h.json", "[1]", "an object for each case, found 1"),
                ("i.json", "[" + ",".join(["{}"] * 1001) + "]", "1001 cases; expected 1 to 1000"),
                ("j.yaml", "", "NAME.toml or NAME.json"),
            ]:
                path = Path(folder, name)
                path.write_text(text)
                with self.subTest(name), self.assertRaisesRegex(CasesError, expected):
                    read_cases(path)
            manifest = Path(folder, "m.toml")
            manifest.write_text("[config]\na = 1979-05-27\n")
            self.assertEqual(config_of(manifest), {"a": "1979-05-27"})

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
