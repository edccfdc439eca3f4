"""A stand-in for the daemon, which answers as each test says and remembers what it was asked."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# Before anything of Airflow is imported: nothing of this machine's own set-up is to be touched.
os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
os.environ["AIRFLOW__CORE__UNIT_TEST_MODE"] = "False"
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"

import pytest


class StandIn:
    """Answers are `(status, body)`; a list of them is used up, its last one stays."""

    def __init__(self) -> None:
        self.requests: list[dict] = []
        self.answers: dict[str, list] = {
            "POST": [(200, "Ok")],
            "GET": [(200, "null")],
            "DELETE": [(200, "{}")],
        }
        self.events: list[dict] = []
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
                status, text = stand_in.answer(self.command, url.path, parse_qs(url.query))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write((text if isinstance(text, str) else json.dumps(text)).encode())

            do_GET = do_POST = do_DELETE = _serve

            def log_message(self, *args) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def answer(self, method: str, path: str, query: dict):
        if path == "/v0/events":
            last = max([0, *(event["number"] for event in self.events)])
            since = last if query["since"] == ["last"] else int(query["since"][0])
            told = [event for event in self.events if event["number"] > since]
            return 200, {
                "events": told,
                "next": max([since, *(event["number"] for event in told)]),
                "anew": False,
            }
        if path == "/v0/queue":
            return 200, {"queue": [{"reason": {"message": "no agent has room"}}]}
        answers = self.answers[method]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def states(self, *states: str) -> None:
        self.answers["GET"] = [
            (200, {"status": {"task_id": {"value": "t"}, "state": state}} if state else None)
            for state in states
        ]

    def asked(self, method: str, path: str = "/v0/") -> list[dict]:
        return [it for it in self.requests if it["method"] == method and it["path"].startswith(path)]

    def stop(self) -> None:
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
