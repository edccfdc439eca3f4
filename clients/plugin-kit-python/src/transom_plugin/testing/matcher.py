"""Cases of `attribute-matcher`: agents, a task's constraints, and the agents that may run the task, on which
it is placed, or whose instances are killed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transom_plugin.matcher import (
    OWN_RULE,
    Agent,
    AgentSet,
    Candidate,
    Constraint,
    Field,
    Matcher,
    Refusal,
    Task,
    Value,
)
from transom_plugin.testing.forms import (
    COUNT,
    TEXT_PAIRS,
    TEXTS,
    U32,
    U64,
    Answer,
    CaseError,
    Fault,
    Prepared,
    Table,
    flag,
    items,
    named,
    pair,
    show,
    text,
)


@dataclass(frozen=True)
class _Names:
    """The names of a case's agents; their handles are 1, 2, …"""

    names: list[str]

    def handle(self, name: str) -> int:
        if name not in self.names:
            raise CaseError(f'no agent has the id or hostname "{name}"')
        # If several agents have this name, the first one.
        return self.names.index(name) + 1

    def of(self, handle: int) -> str:
        return self.names[handle - 1]


def prepare(case: Any) -> Prepared:
    """Reads a case."""
    given = Table(case, "case")
    agents = given.take("agents", items(_agent))
    home_region = given.text("home-region")
    run_spec = given.text("run-spec", "/self-test")
    constraints = given.take("constraints", items(_constraint), [])
    placed_on = given.take("placed", TEXTS, [])
    ending = given.take("ending", TEXTS, [])
    extensions = given.take("extensions", TEXT_PAIRS, [])
    instances = given.take("instances", COUNT)
    candidates_on = given.take("candidates", items(_candidate))
    kill = given.take("kill", COUNT)
    place = given.take("place", COUNT)
    validate = given.take("validate", flag, False)
    expect = given.take("expect", _expected)
    given.end()

    if sum((kill is not None, place is not None, validate)) > 1:
        raise CaseError("a case has only one of `kill`, `place` and `validate`")
    if agents is None:
        if not validate:
            raise CaseError("`agents` is missing")
        agents = []
    names = _Names([id or hostname for id, hostname, *_ in agents])
    placed = [names.handle(it) for it in placed_on]
    handles = [names.handle(it) for it in ending]
    expected, exact = _answer(names, expect, place is not None)
    if kill is not None and kill > len(placed):
        raise CaseError(f"`kill` is at most the number of placed instances, {len(placed)}")
    if handles:
        extensions = [*extensions, ("ending", " ".join(map(str, handles)))]
    if candidates_on is None:
        candidates = [Candidate(handle) for handle in range(1, len(agents) + 1)]
    else:
        candidates = [Candidate(names.handle(name), capacity) for name, capacity in candidates_on]
    usual = len(placed) - kill if kill is not None else len(placed) + 1
    task = Task(run_spec, usual if instances is None else instances, constraints, placed, extensions)

    def loaded() -> AgentSet:
        made = {
            handle: Agent(handle, id or f"self-test-{handle}", *rest)
            for handle, (id, *rest) in enumerate(agents, 1)
        }
        return AgentSet(made, home_region)

    ask: Callable[[Matcher], Answer]
    if validate:

        def ask(plugin: Matcher) -> Answer:
            found = [it.constraint for it in plugin.validate(constraints)]
            for index in found:
                if not 0 <= index < len(constraints):
                    raise Fault(f"an error for constraint {index} of {len(constraints)}")
            return {"expect": sorted(set(found))}

    elif place is not None:

        def ask(plugin: Matcher) -> Answer:
            chosen = plugin.place(loaded(), task, candidates, place)
            _check_places(chosen, candidates, place)
            return {"expect": [names.of(it) for it in chosen]}

    elif kill is not None:

        def ask(plugin: Matcher) -> Answer:
            chosen = plugin.select_kills(loaded(), task, kill)
            _check_kills(chosen, len(placed), kill)
            return {"expect": list(chosen) if exact else sorted(names.of(placed[it]) for it in chosen)}

    else:

        def ask(plugin: Matcher) -> Answer:
            refusals = plugin.evaluate(loaded(), task, candidates)
            verdicts = _verdicts(refusals, len(candidates), len(constraints))
            found = [(names.of(it.agent), verdict) for it, verdict in zip(candidates, verdicts, strict=True)]
            if exact:
                return {"expect": dict(found)}
            return {"expect": sorted(name for name, verdict in found if verdict == "fits")}

    return Prepared(ask, expected)


def _answer(names: _Names, expect: Any, in_order: bool) -> tuple[Answer | None, bool]:
    """The expected answer, and whether it is exact."""
    if expect is None:
        return None, False
    if isinstance(expect, dict):
        for name in expect:
            names.handle(name)
        return {"expect": expect}, True
    if all(isinstance(it, str) for it in expect):
        for name in expect:
            names.handle(name)
        return {"expect": expect if in_order else sorted(expect)}, False
    return {"expect": expect}, True


def _expected(value: Any, path: str) -> Any:
    """Names, indices, or verdicts by candidate."""
    if isinstance(value, dict):
        for name, verdict in value.items():
            if verdict != "fits":
                U32(verdict, f"{path}.{name}")
        return value
    if isinstance(value, list) and (all(isinstance(it, str) for it in value)):
        return value
    return items(U32)(value, path)


def _agent(value: Any, path: str) -> tuple[Any, ...]:
    given = Table(value, path)
    found = (
        given.text("id"),
        given.need("hostname", text),
        given.take("attributes", named(_value), []),
        given.text("region"),
        given.text("zone"),
        given.take("extensions", TEXT_PAIRS, []),
    )
    given.end()
    return found


def _value(value: Any, path: str) -> Value:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list):
        if value and all(isinstance(it, str) for it in value):
            return frozenset(value)
        return tuple(items(pair(U64, U64))(value, path))
    if value == {"set": []}:
        return frozenset()
    raise CaseError(f"{path}: found {show(value)}, expected a string, a number, ranges or a set")


def _constraint(value: Any, path: str) -> Constraint:
    if isinstance(value, str):
        return value
    parts = TEXTS(value, path)
    if len(parts) not in (2, 3):
        raise CaseError(f"a constraint has a field, an operator and perhaps an operand, not {show(parts)}")
    return Field(*parts)


def _candidate(value: Any, path: str) -> tuple[str, int]:
    if isinstance(value, str):
        return value, 1
    given = Table(value, path)
    found = given.need("agent", text), given.need("capacity", COUNT)
    # Other keys are ignored, as by the host.
    return found


def _verdicts(refusals: list[Refusal], candidates: int, constraints: int) -> list[Any]:
    if len(refusals) != candidates:
        raise Fault(f"{len(refusals)} verdicts on {candidates} candidates")
    verdicts: list[Any] = []
    for it in refusals:
        index = constraints if it == OWN_RULE else it
        if isinstance(index, int) and not 0 <= index <= constraints:
            raise Fault(f"refused by constraint {index} of {constraints}")
        verdicts.append("fits" if index is None else index)
    return verdicts


def _check_places(chosen: list[int], candidates: list[Candidate], count: int) -> None:
    if len(chosen) > count:
        raise Fault(f"{len(chosen)} places for {count} instances")
    capacity: dict[int, int] = {}
    for it in candidates:
        capacity[it.agent] = capacity.get(it.agent, 0) + it.capacity
    for agent in chosen:
        if agent not in capacity:
            raise Fault(f"agent {agent} was chosen but is not a candidate")
        if capacity[agent] == 0:
            raise Fault(f"agent {agent} was chosen more often than its capacity")
        capacity[agent] -= 1


def _check_kills(chosen: list[int], placed: int, count: int) -> None:
    if len(chosen) > count:
        raise Fault(f"{len(chosen)} instances to kill instead of {count}")
    for index in chosen:
        if not 0 <= index < placed:
            raise Fault(f"instance {index} of {placed} is to be killed")
    if len(set(chosen)) != len(chosen):
        raise Fault("an instance is to be killed twice")
