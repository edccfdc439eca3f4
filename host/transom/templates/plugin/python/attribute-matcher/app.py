"""Places tasks by ["attribute", "IS", "value"], and nowhere where maintenance is done."""

from transom_plugin import export
from transom_plugin.matcher import OWN_RULE, ConstraintError, Field, Matcher


class Places(Matcher):
    # Without a schema it takes no configuration.
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"

    def validate(self, constraints):
        """Called when a definition is posted: the errors of its constraints."""
        return [
            ConstraintError(at, 'expected ["attribute", "IS", "value"]')
            for at, constraint in enumerate(constraints)
            if not understood(constraint)
        ]

    def refusal(self, task, agent):
        """The first constraint that an agent does not satisfy, or a rule of this matcher's own; None: it fits."""
        for at, constraint in enumerate(task.constraints):
            if not understood(constraint) or agent.text(constraint.field) != constraint.operand:
                return at
        return OWN_RULE if agent.text("maintenance") == "true" else None


def understood(constraint):
    return isinstance(constraint, Field) and constraint.operator == "IS" and constraint.operand is not None


export(Places)
