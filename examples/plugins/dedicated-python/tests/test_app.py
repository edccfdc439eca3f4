import unittest

from app import Dedicated
from transom_plugin.matcher import OWN_RULE, Agent, AgentSet, Candidate, Task


class DedicatedTest(unittest.TestCase):
    agents = AgentSet(
        {
            1: Agent(1, "S1", "a"),
            2: Agent(2, "S2", "b", [("dedicated", "/shop")]),
            3: Agent(3, "S3", "c", [("dedicated", "/sho")]),
            4: Agent(4, "S4", "d", [("dedicated", frozenset(["/shop"]))]),
        }
    )
    candidates = tuple(Candidate(handle, capacity=2) for handle in (3, 2, 1, 4))

    def test_dedicated_agents_run_the_tasks_of_their_group(self):
        rejections = Dedicated({}).evaluate(self.agents, Task("/shop/web"), self.candidates)
        self.assertEqual(rejections, [OWN_RULE, None, None, OWN_RULE])

    def test_instances_are_placed_in_the_order_of_the_candidates(self):
        self.assertEqual(Dedicated({}).place(self.agents, Task("/shop"), self.candidates, 3), [2, 2, 1])
