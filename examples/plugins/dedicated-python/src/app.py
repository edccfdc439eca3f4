"""Agents with the attribute `dedicated:/group` take tasks of that group only, as `dedicated` in Rust does it."""

from transom_plugin import export
from transom_plugin.matcher import OWN_RULE, Matcher


class Dedicated(Matcher):
    name, version = "dedicated-python", "0.1.0"
    summary = "agents that are dedicated to a group take its apps only"

    def refusal(self, task, agent):
        for name, group in agent.attributes:
            if name == "dedicated":
                own = isinstance(group, str) and (task.run_spec + "/").startswith(group + "/")
                return None if own else OWN_RULE
        return None


export(Dedicated)
