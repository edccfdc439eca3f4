"""Restricts agents with the attribute `dedicated:/group` to that group's tasks, like `dedicated` in Rust."""

from transom_plugin import export
from transom_plugin.matcher import OWN_RULE, Matcher


class Dedicated(Matcher):
    name, version = "dedicated-python", "0.1.0"
    summary = "restricts dedicated agents to the apps of their group"

    def refusal(self, task, agent):
        for name, group in agent.attributes:
            if name == "dedicated":
                own = isinstance(group, str) and (task.run_spec + "/").startswith(group + "/")
                return None if own else OWN_RULE
        return None


export(Dedicated)
