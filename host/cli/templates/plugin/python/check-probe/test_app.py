import unittest

from app import WordProbe
from transom_plugin.probe import Endpoint, Http, HttpResponse, IoError, Request
from transom_plugin.testing import attempt

HERE = Endpoint("10.0.0.1", 80)


class WordProbeTest(unittest.TestCase):
    def attempt(self, answer):
        probe = WordProbe.configured({"word": "ready"})
        return attempt(probe, Request(endpoint=HERE, path="/health"), [(Http(HERE, "/health"), answer)])

    def test_the_word_is_found(self):
        self.assertEqual(self.attempt(HttpResponse(200, body=b"ready")), {"found": True, "status": 200})
        self.assertEqual(self.attempt(HttpResponse(503, body=b"loading")), {"found": False, "status": 503})

    def test_a_closed_port_has_no_result(self):
        self.assertEqual(self.attempt(IoError("refused")).reason, "unreachable")
