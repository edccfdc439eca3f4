import unittest

from app import AttributeMatcher
from transom_plugin.matcher import OWN_RULE, Agent, Field, Task


class AttributeMatcherTest(unittest.TestCase):
    def test_agents_need_the_attribute(self):
        task = Task("/app", constraints=[Field("rack", "IS", "r1")])
        agents = {
            "fits": Agent(1, "S1", "a", [("rack", "r1")]),
            "other rack": Agent(2, "S2", "b", [("rack", "r2")]),
            "maintenance": Agent(3, "S3", "c", [("rack", "r1"), ("maintenance", "true")]),
        }
        found = {name: AttributeMatcher({}).refusal(task, agent) for name, agent in agents.items()}
        self.assertEqual(found, {"fits": None, "other rack": 0, "maintenance": OWN_RULE})
