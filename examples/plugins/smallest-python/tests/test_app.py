import unittest

from app import Quiet
from transom_plugin.events import DROP, PASS, Event, Query


class QuietTest(unittest.TestCase):
    def test_events_of_load_tests_are_dropped(self):
        decide = Quiet({}).open(Query(["a"]))
        subjects = ["/load/x", "/shop", None]
        self.assertEqual([decide(Event(1, "a", it, "{}")) for it in subjects], [DROP, PASS, PASS])
        self.assertEqual(decide(Event(2, "b", "/shop", "{}")), DROP)
