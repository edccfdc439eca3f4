"""The cluster's agents, loaded once and asked about many times."""

from wit_world.exports.matcher import Constraint_Field, Value_Scalar, Value_Text, Verdict_Fits, Verdict_Refused


class AgentSet:
    def __init__(self, home_region):
        self.agents = {}

    def update(self, changed, gone):
        for agent in changed:
            self.agents[agent.handle] = {it.name: text(it.value) for it in agent.attributes}
        for handle in gone:
            self.agents.pop(handle, None)

    def evaluate(self, task, candidates):
        """For each candidate, in order, whether one more instance may go there."""
        return [self.one(task, it) for it in candidates]

    def place(self, task, candidates, count):
        """Takes them as the host prefers them: nothing here depends on what runs where already."""
        fit = [it for it in candidates if isinstance(self.one(task, it), Verdict_Fits)]
        return [it.agent for it in fit for _ in range(it.capacity)][:count]

    def select_kills(self, task, count):
        """Which instances to kill when a task is scaled down: the host chooses."""
        return []

    def one(self, task, candidate):
        attributes = self.agents.get(candidate.agent, {})
        for at, constraint in enumerate(task.constraints):
            wanted = understood(constraint)
            if wanted is None or attributes.get(wanted[0]) != wanted[1]:
                return Verdict_Refused(at)
        if attributes.get("maintenance") == "true":
            # As many as there are constraints: none of them, a rule of this matcher's own.
            return Verdict_Refused(len(task.constraints))
        return Verdict_Fits()


def understood(constraint):
    """Attribute and value of a constraint; None: another kind of constraint."""
    if isinstance(constraint, Constraint_Field):
        it = constraint.value
        if it.operator == "IS" and it.operand is not None:
            return it.field, it.operand
    return None


def text(value):
    """An attribute's value as a constraint writes it; None: it has several."""
    if isinstance(value, Value_Text):
        return value.value
    if isinstance(value, Value_Scalar):
        return f"{value.value:g}"
    return None
