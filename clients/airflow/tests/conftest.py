"""A stand-in for the daemon, with scripted answers, which records the requests."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# Set before Airflow is imported, so that tests do not touch this machine's Airflow.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest


class StandIn:
    """Answers are `(status, body)`. A list of answers is consumed in order, and its last one is repeated.

    The status `"cut"` ends the response in the middle of its body; `"silent"` sends nothing until the end of
    the test; `"slow"` sends the body byte by byte, without an end.
    """

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.answers: dict[str, list] = {
            "POST": [(200, "Ok")],
            "GET": [(200, "null")],
            "DELETE": [(200, "{}")],
        }
        # Answers that replace the usual one of a path.
        self.by_path: dict[str, tuple] = {}
        self.events: list[dict] = []
        # The reasons in `/v0/queue`, by job id.
        self.reasons: dict[str, dict] = {}
        # The output of a container, by stream.
        self.written: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        # Methods of requests whose answers are lost after the request was executed.
        self.lost: list[str] = []
        self.stopped = threading.Event()
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = self.rfile.read(length)
                url = urlsplit(self.path)
                stand_in.requests.append(
                    {
                        "method": self.command,
                        "path": url.path,
                        "query": parse_qs(url.query),
                        "headers": dict(self.headers),
                        "json": json.loads(body) if body else None,
                    }
                )
                if self.command in stand_in.lost:
                    stand_in.lost.remove(self.command)
                    self.close_connection = True
                    return
                if url.path.endswith("/log") and "stream" in url.query:
                    self._part(parse_qs(url.query))
                    return
                status, text = stand_in.answer(self.command, url.path, parse_qs(url.query))
                content = (text if isinstance(text, str) else json.dumps(text)).encode()
                if isinstance(status, str):
                    self._misbehave(status, content)
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(content)

            def _misbehave(self, how: str, content: bytes) -> None:
                self.close_connection = True
                if how == "silent":
                    stand_in.stopped.wait()
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content) + 1000))
                self.end_headers()
                self.wfile.write(content)
                with contextlib.suppress(OSError):
                    while how == "slow" and not stand_in.stopped.wait(0.02):
                        self.wfile.write(b" ")
                        self.wfile.flush()

            def _part(self, query: dict) -> None:
                [stream], offset, length = query["stream"], int(query["offset"][0]), int(query["length"][0])
                data = stand_in.written[stream][offset : offset + length]
                self.send_response(200)
                self.send_header("Transom-Next-Offset", str(offset + len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, method: str, path: str, query: dict):
        if path in self.by_path:
            return self.by_path[path]
        if path == "/v0/events":
            last = max([0, *(event["number"] for event in self.events)])
            since = last if query["since"] == ["last"] else int(query["since"][0])
            told = [event for event in self.events if event["number"] > since]
            return 200, {
                "events": told,
                "next": max([since, *(event["number"] for event in told)]),
                "reset": False,
            }
        if path == "/v0/queue":
            [asked] = query.get("task_id", [None])
            if asked is not None:
                no_room = {
                    "code": "InsufficientCpus",
                    "message": "no agent has room",
                    "unsatisfied_constraints": [],
                }
                return 200, {"queue": [{"reason": self.reasons.get(asked, no_room)}]}
            return 200, {
                "queue": [
                    {"task_id": task_id, "waited": reason.pop("waited", 1.0), "reason": reason}
                    for task_id, reason in self.reasons.items()
                ]
            }
        answers = self.answers[method]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def states(self, *states: str) -> None:
        self.answers["GET"] = [
            (200, {"status": {"task_id": {"value": "t"}, "state": state}} if state else None)
            for state in states
        ]

    def asked(self, method: str, path: str = "/v0/") -> list[dict]:
        found = [it for it in self.requests if it["method"] == method and it["path"].startswith(path)]
        # Requests for a log do not count.
        return [it for it in found if not it["path"].endswith("/log")]

    def stop(self) -> None:
        self.stopped.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def daemon():
    stand_in = StandIn()
    yield stand_in
    stand_in.stop()


@pytest.fixture(autouse=True)
def configured(daemon, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CLUSTER__OPERATOR_API_URL", daemon.url)
