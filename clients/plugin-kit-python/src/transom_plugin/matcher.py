"""``attribute-matcher``: decides which agents may run a task.

Most matchers evaluate each agent separately: they override :meth:`Matcher.refusal`, and the base class
does the rest. A matcher that compares agents overrides :meth:`Matcher.evaluate` and :meth:`Matcher.place`.

>>> class Ssd(Matcher):
...     name, version, summary = "ssd", "0.1.0", "only agents with an SSD"
...
...     def refusal(self, task, agent):
...         return None if agent.text("disk") == "ssd" else OWN_RULE
>>> agents = AgentSet({1: Agent(1, "S1", "a", [("disk", "ssd")]), 2: Agent(2, "S2", "b")})
>>> Ssd({}).evaluate(agents, Task("/app"), [Candidate(1), Candidate(2)])
[None, 'own-rule']
>>> Ssd({}).place(agents, Task("/app"), [Candidate(2), Candidate(1, capacity=3)], 2)
[1, 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final, Literal, TypeAlias

from transom_plugin.plugin import Plugin

#: The value of an attribute: a text, a number, inclusive ranges, or a set.
Value: TypeAlias = str | float | tuple[tuple[int, int], ...] | frozenset[str]

#: A rejection by a rule of the matcher itself, not by a constraint.
OWN_RULE: Final = "own-rule"

#: Why an agent is rejected: the index of the first constraint that it does not satisfy, or
#: :data:`OWN_RULE`. None: the agent fits.
Refusal: TypeAlias = int | Literal["own-rule"] | None


@dataclass(frozen=True)
class Agent:
    """An agent of the cluster."""

    #: The number by which the host identifies this agent.
    handle: int
    #: The agent's id in the cluster.
    id: str
    hostname: str
    #: Names and values. A name may occur several times.
    attributes: list[tuple[str, Value]] = field(default_factory=list)
    region: str | None = None
    zone: str | None = None
    extensions: list[tuple[str, str]] = field(default_factory=list)

    def text(self, name: str) -> str | None:
        """The first attribute of this name, in the form of a constraint's value; None if the agent has no
        such attribute, or if it has several values.

        >>> Agent(1, "S1", "a", [("cores", 8.0), ("tags", frozenset(["x"]))]).text("cores")
        '8'
        """
        for known, value in self.attributes:
            if known == name:
                if isinstance(value, str):
                    return value
                return _digits(value) if isinstance(value, float) else None
        return None


def _digits(number: float) -> str:
    """Formats a number with all its digits, without an exponent."""
    return format(Decimal(repr(number)), "f").removesuffix(".0")


@dataclass(frozen=True)
class AgentSet(Mapping[int, Agent]):
    """The cluster's agents, by their handles."""

    agents: dict[int, Agent] = field(default_factory=dict)
    #: The master's region, if it has one.
    home_region: str | None = None

    def __getitem__(self, handle: int) -> Agent:
        return self.agents[handle]

    def __iter__(self) -> Iterator[int]:
        return iter(self.agents)

    def __len__(self) -> int:
        return len(self.agents)


@dataclass(frozen=True)
class Field:
    """A constraint of an app or pod: ``["rack", "GROUP_BY", "3"]``. The operator is in upper case."""

    field: str
    operator: str
    operand: str | None = None


#: A text is an attribute entry of a workflow task, as written: `gpu:true`.
Constraint: TypeAlias = str | Field


@dataclass(frozen=True)
class ConstraintError:
    """An error in the constraint with this index; ``message`` contains the expected value."""

    constraint: int
    message: str


@dataclass(frozen=True)
class Task:
    """The task that needs further instances."""

    run_spec: str
    #: How many instances are wanted in all.
    instances: int = 1
    constraints: list[Constraint] = field(default_factory=list)
    #: Handles of the agents that run an instance now; an agent with two instances occurs twice.
    placed: list[int] = field(default_factory=list)
    extensions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Candidate:
    """An agent with room for at least one instance."""

    #: Its handle.
    agent: int
    #: How many more instances its resources allow.
    capacity: int = 1


class Matcher(Plugin):
    """A plugin of the world ``attribute-matcher``."""

    world: ClassVar[str] = "attribute-matcher"

    def validate(self, constraints: Sequence[Constraint]) -> list[ConstraintError]:
        """Returns the errors in the constraints of a definition that a client posts; by default none."""
        return []

    def refusal(self, task: Task, agent: Agent) -> Refusal:
        """Returns why one more instance may not run on this agent; None: it may."""
        raise NotImplementedError

    def evaluate(self, agents: AgentSet, task: Task, candidates: Sequence[Candidate]) -> list[Refusal]:
        """Returns for each candidate, in order, why it may not run one more instance; None: it may."""
        return [self.refusal(task, agents[it.agent]) for it in candidates]

    def place(self, agents: AgentSet, task: Task, candidates: Sequence[Candidate], count: int) -> list[int]:
        """Returns the handles of agents for up to `count` further instances, as if they were placed one
        after the other; by default in the host's order of preference."""
        chosen: list[int] = []
        for it, rejection in zip(candidates, self.evaluate(agents, task, candidates), strict=True):
            if len(chosen) >= count:
                break
            if rejection is None:
                chosen += [it.agent] * min(it.capacity, count - len(chosen))
        return chosen

    def select_kills(self, agents: AgentSet, task: Task, count: int) -> list[int]:
        """Selects instances to kill, as indices into ``task.placed``; by default the host selects them."""
        return []
