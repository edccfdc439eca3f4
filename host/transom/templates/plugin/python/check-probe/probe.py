"""One look at one task. It does nothing itself: it says what to do next, and the host does it."""

import json

from componentize_py_types import Ok
from wit_world.exports.probe import (
    Answer_Http,
    Failure,
    HttpRequest,
    IoError_Denied,
    IoError_TimedOut,
    Outcome_Custom,
    Reason,
    Step_Done,
    Step_Failed,
    Step_Http,
)

# Set by About.configure.
word = ""


class Attempt:
    def __init__(self, request):
        self.request = request

    def next(self, last):
        """Asked first without an answer, then with the answer to each step."""
        if last is None:
            return self.ask()
        if not isinstance(last, Answer_Http):
            return failed(Reason.INTERNAL, "an answer to something that was not asked")
        if isinstance(last.value, Ok):
            response = last.value.value
            found = word in response.body.decode("utf-8", "replace")
            return Step_Done(Outcome_Custom(json.dumps({"found": found, "status": response.status})))
        error = last.value.value
        if isinstance(error, IoError_Denied):
            return failed(Reason.DENIED, "asking the task: not granted to this plugin")
        if isinstance(error, IoError_TimedOut):
            return failed(Reason.TIMED_OUT, "asking the task: timed out")
        return failed(Reason.UNREACHABLE, f"asking the task: {type(error).__name__}")

    def ask(self):
        if self.request.endpoint is None:
            return failed(Reason.INVALID, "the check names no port")
        return Step_Http(
            HttpRequest(
                method="GET",
                endpoint=self.request.endpoint,
                tls=None,
                path=self.request.path,
                headers=[],
                body=b"",
                max_body=64 * 1024,
                redirects=0,
            )
        )


def failed(reason, message):
    return Step_Failed(Failure(reason, message))
