"""Makes a plugin's class a component: converts between the kit's types and those that `componentize-py`
generates, which exist only in a component."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

from transom_plugin import bootstrap, events, log, matcher, probe
from transom_plugin.plugin import InvalidConfig, Plugin, Refused, schema_text

# The configured plugin of the component; empty before the configuration.
_configured: list[Any] = []


def export(plugin: type[Plugin]) -> None:
    """Makes the calling module a component of the class's world. Call it once, in `app.py`.

    Outside of a component, in unit tests, it only checks that the class has all attributes of a plugin.

    >>> export(Plugin)
    Traceback (most recent call last):
        ...
    TypeError: Plugin has no world: expected a subclass of Probe, Matcher, Filter or Bootstrap
    """
    world = getattr(plugin, "world", None)
    if world is None:
        raise TypeError(
            f"{plugin.__name__} has no world: expected a subclass of Probe, Matcher, Filter or Bootstrap"
        )
    for attribute in ("name", "version", "summary"):
        if not isinstance(getattr(plugin, attribute, None), str):
            raise TypeError(f"{plugin.__name__} has no `{attribute}`: expected a string")
    if importlib.util.find_spec("wit_world") is None:
        return
    module = sys._getframe(1).f_globals
    module["About"] = _about(plugin)
    _WORLDS[world](module)


def _plugin() -> Any:
    return _configured[0]


def _about(plugin: type[Plugin]) -> type:
    from componentize_py_types import Err
    from wit_world.exports import about
    from wit_world.imports import log as wit_log

    levels = wit_log.Level
    log._sink = lambda level, message: wit_log.write(levels[level.upper()], message)

    class About:
        def describe(self) -> Any:
            return about.Description(plugin.name, plugin.version, plugin.summary, schema_text(plugin))

        def configure(self, config: str) -> None:
            try:
                _configured[:] = [plugin.configured(json.loads(config))]
            except InvalidConfig as invalid:
                raise Err([about.ConfigError(it.pointer, it.message) for it in invalid.errors]) from None

    return About


def _resource(module: str, name: str, resource: type) -> None:
    """Adds a module named after the interface, in which `componentize-py` looks for the resource."""
    made = ModuleType(module)
    setattr(made, name, resource)
    sys.modules[module] = made


def _filter(module: dict[str, Any]) -> None:
    from componentize_py_types import Err
    from wit_world.exports import filter as wit

    def decision(of: events.Decision) -> Any:
        if of == events.PASS:
            return wit.Decision_Pass()
        if of == events.DROP:
            return wit.Decision_Drop()
        return wit.Decision_Replace(json.dumps(of))

    class View:
        def __init__(self, decide: Any) -> None:
            self._decide = decide

        @classmethod
        def open(cls, query: Any) -> View:
            asked = events.Query(query.event_types, query.expression, query.principal, query.extensions)
            try:
                return cls(_plugin().open(asked))
            except Refused as rejected:
                raise Err(rejected.message) from None

        def decide(self, found: list[Any]) -> list[Any]:
            given = (events.Event(it.sequence, it.kind, it.subject, it.body) for it in found)
            return [decision(self._decide(event)) for event in given]

    module["Filter"] = type("Filter", (), {})
    _resource("filter", "View", View)


def _bootstrap(module: dict[str, Any]) -> None:
    from componentize_py_types import Err
    from wit_world.exports import bootstrap as wit

    class Bootstrap:
        def prepare(self, context: Any, script: bytes) -> Any:
            given = bootstrap.Context(**{**vars(context), "role": context.role.name.lower()})
            try:
                prepared = _plugin().prepare(given, script)
            except Refused as rejected:
                raise Err(wit.Refusal(rejected.message, rejected.retry)) from None
            return wit.Prepared(prepared.script, prepared.environment, prepared.arguments)

    module["Bootstrap"] = Bootstrap


def _matcher(module: dict[str, Any]) -> None:
    from wit_world.exports import matcher as wit

    def value(of: Any) -> matcher.Value:
        if isinstance(of, wit.Value_Ranges):
            return tuple((first, last) for first, last in of.value)
        if isinstance(of, wit.Value_Set):
            return frozenset(of.value)
        found: str | float = of.value
        return found

    def agent(of: Any) -> matcher.Agent:
        attributes = [(it.name, value(it.value)) for it in of.attributes]
        return matcher.Agent(of.handle, of.id, of.hostname, attributes, of.region, of.zone, of.extensions)

    def constraint(of: Any) -> matcher.Constraint:
        if isinstance(of, wit.Constraint_Field):
            return matcher.Field(of.value.field, of.value.operator, of.value.operand)
        text: str = of.value
        return text

    def task(of: Any) -> matcher.Task:
        constraints = [constraint(it) for it in of.constraints]
        return matcher.Task(of.run_spec, of.instances, constraints, of.placed, of.extensions)

    def candidates(of: list[Any]) -> list[matcher.Candidate]:
        return [matcher.Candidate(it.agent, it.capacity) for it in of]

    class AgentSet:
        def __init__(self, home_region: str | None) -> None:
            self._agents = matcher.AgentSet({}, home_region)

        def update(self, changed: list[Any], gone: list[int]) -> None:
            for it in changed:
                self._agents.agents[it.handle] = agent(it)
            for handle in gone:
                self._agents.agents.pop(handle, None)

        def evaluate(self, asked: Any, of: list[Any]) -> list[Any]:
            own = len(asked.constraints)
            rejections = _plugin().evaluate(self._agents, task(asked), candidates(of))
            return [
                wit.Verdict_Fits()
                if it is None
                else wit.Verdict_Refused(own if it == matcher.OWN_RULE else it)
                for it in rejections
            ]

        def place(self, asked: Any, of: list[Any], count: int) -> list[int]:
            chosen: list[int] = _plugin().place(self._agents, task(asked), candidates(of), count)
            return chosen

        def select_kills(self, asked: Any, count: int) -> list[int]:
            chosen: list[int] = _plugin().select_kills(self._agents, task(asked), count)
            return chosen

    class Matcher:
        def validate(self, constraints: list[Any]) -> list[Any]:
            errors = _plugin().validate([constraint(it) for it in constraints])
            return [wit.ConstraintError(it.constraint, it.message) for it in errors]

    module["Matcher"] = Matcher
    _resource("matcher", "AgentSet", AgentSet)


def _probe(module: dict[str, Any]) -> None:
    from componentize_py_types import Err
    from wit_world.exports import probe as wit

    def kit_endpoint(of: Any) -> probe.Endpoint:
        return probe.Endpoint(of.host, of.port)

    def kit_outcome(of: Any) -> probe.Outcome:
        if isinstance(of, wit.Outcome_Custom):
            custom: probe.Outcome = json.loads(of.value)
            return custom
        if isinstance(of, wit.Outcome_Http):
            return probe.HttpStatus(of.value)
        return probe.Tcp(of.value) if isinstance(of, wit.Outcome_Tcp) else probe.ExitCode(of.value)

    def kit_request(of: Any) -> probe.Request:
        given = dict(vars(of))
        given["ports"] = [probe.Port(it.name, it.protocol, kit_endpoint(it.endpoint)) for it in of.ports]
        given["endpoint"] = None if of.endpoint is None else kit_endpoint(of.endpoint)
        given["previous"] = None if of.previous is None else kit_outcome(of.previous)
        return probe.Request(**given)

    def kit_answer(of: Any) -> probe.Answer:
        result = of.value
        if isinstance(result, Err):
            error = result.value
            kind = type(error).__name__.removeprefix("IoError_")
            # `TimedOut` becomes `timed-out`.
            kind = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind).removeprefix("-")
            return probe.IoError(kind, getattr(error, "value", ""))  # type: ignore[arg-type]
        it = result.value
        if isinstance(of, wit.Answer_Http):
            return probe.HttpResponse(it.status, it.headers, it.body, it.elapsed)
        if isinstance(of, wit.Answer_Ran):
            return probe.CommandOutput(it.exit_code, it.stdout, it.stderr)
        if isinstance(of, wit.Answer_Sent):
            return None
        found: int | bytes = it
        return found

    def tls(of: probe.Tls | None) -> Any:
        return None if of is None else wit.Tls(of.server_name, of.verify)

    def endpoint(of: probe.Endpoint | None) -> Any:
        # `Running` ends an attempt whose step has no endpoint.
        assert of is not None
        return wit.Endpoint(of.host, of.port)

    def step(of: Any) -> Any:
        match of:
            case probe.Http():
                request = wit.HttpRequest(
                    of.method,
                    endpoint(of.endpoint),
                    tls(of.tls),
                    of.path,
                    of.headers,
                    of.body,
                    of.max_body,
                    of.redirects,
                )
                return wit.Step_Http(request)
            case probe.Connect():
                return wit.Step_Connect((endpoint(of.endpoint), tls(of.tls)))
            case probe.Send():
                return wit.Step_Send(of.data)
            case probe.Receive():
                return wit.Step_Receive(of.most)
            case probe.Shell():
                return wit.Step_Run(wit.CommandLine_Shell(of.line))
            case probe.Run():
                return wit.Step_Run(wit.CommandLine_Argv(of.argv))
            case probe.Failed():
                reason = wit.Reason[of.reason.upper().replace("-", "_")]
                return wit.Step_Failed(wit.Failure(reason, of.message))
            case probe.HttpStatus():
                return wit.Step_Done(wit.Outcome_Http(of.status))
            case probe.Tcp():
                return wit.Step_Done(wit.Outcome_Tcp(of.succeeded))
            case probe.ExitCode():
                return wit.Step_Done(wit.Outcome_Command(of.code))
            case _:
                return wit.Step_Done(wit.Outcome_Custom(json.dumps(of)))

    class Attempt:
        def __init__(self, request: Any) -> None:
            self._running = probe.Running(_plugin(), kit_request(request))

        def next(self, last: Any) -> Any:
            return step(self._running.first() if last is None else self._running.next(kit_answer(last)))

    module["Probe"] = type("Probe", (), {})
    _resource("probe", "Attempt", Attempt)


_WORLDS = {
    "check-probe": _probe,
    "attribute-matcher": _matcher,
    "event-filter": _filter,
    "bootstrap-handler": _bootstrap,
}
