"""Places tasks by ["attribute", "IS", "value"], and never on an agent in maintenance."""

from transom_plugin import export
from transom_plugin.matcher import OWN_RULE, ConstraintError, Field, Matcher


class AttributeMatcher(Matcher):
    # It has no schema, so it takes no configuration.
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"

    def validate(self, constraints):
        """Called when a definition is posted. Returns the errors in its constraints."""
        return [
            ConstraintError(at, 'expected ["attribute", "IS", "value"]')
            for at, constraint in enumerate(constraints)
            if not supported(constraint)
        ]

    def refusal(self, task, agent):
        """Returns the index of the first constraint that the agent does not satisfy.

        OWN_RULE: the matcher rejects the agent for another reason. None: the task may run there.
        """
        for at, constraint in enumerate(task.constraints):
            if not supported(constraint) or agent.text(constraint.field) != constraint.operand:
                return at
        return OWN_RULE if agent.text("maintenance") == "true" else None


def supported(constraint):
    return isinstance(constraint, Field) and constraint.operator == "IS" and constraint.operand is not None


export(AttributeMatcher)
