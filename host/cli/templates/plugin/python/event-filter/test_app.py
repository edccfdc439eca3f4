import unittest

from app import AppFilter
from transom_plugin import Refused
from transom_plugin.events import DROP, PASS, Event, Query


class AppFilterTest(unittest.TestCase):
    def test_apps_of_the_group_are_hidden(self):
        decide = AppFilter.configured({"hide": ["/load"]}).open(Query([]))
        found = [decide(Event(1, "app_terminated_event", app, "{}")) for app in ("/load/x", "/loader", None)]
        self.assertEqual(found, [DROP, PASS, PASS])

    def test_expressions_are_rejected(self):
        with self.assertRaisesRegex(Refused, "no expressions"):
            AppFilter({}).open(Query([], expression="true"))
