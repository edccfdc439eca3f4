import unittest

from app import HostPrinter
from transom_plugin import Refused
from transom_plugin.bootstrap import Context


class HostPrinterTest(unittest.TestCase):
    def test_the_host_is_printed_first(self):
        prepared = HostPrinter({}).prepare(Context("agent", "fw", host="a"), b"exec run")
        self.assertEqual(prepared.script, b"echo 'agent 0 on a'\nexec run")
        self.assertIn(("TRANSOM_ROLE", "agent"), prepared.environment)

    def test_a_container_needs_a_script(self):
        with self.assertRaisesRegex(Refused, "no script"):
            HostPrinter({}).prepare(Context("agent", "fw"), b"")
