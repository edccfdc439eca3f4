"""The daemon's workflow port, over HTTP.

Every call has a deadline and raises what `requests` raises: `ConnectionError` and `Timeout` when nobody is
there, `HTTPError` for an answer that is an error, `ValueError` for one that is no JSON.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import requests
from airflow.configuration import conf

DEFAULT_URL = "http://localhost:11000"
DEADLINE = 30.0

#: Nobody was there: worth another try.
AWAY = (requests.exceptions.ConnectionError, requests.exceptions.Timeout)

#: States in which a task has not ended.
LIVE = frozenset({"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"})
FINISHED = "TASK_FINISHED"


def setting(key: str) -> str | None:
    """A key of the section `[cluster]`, or of `[mesos]`; the first one wins."""
    for section in ("cluster", "mesos"):
        value = conf.get(section, key, fallback=None)
        if value:
            return cast(str, value)
    return None


class Daemon:
    """A client. Not to be shared between threads."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: the configured one, unless given."""
        self.url = (url or setting("operator_api_url") or DEFAULT_URL).rstrip("/")
        self._session = requests.Session()
        username, password = setting("api_username"), setting("api_password")
        if username and password:
            self._session.auth = (username, password)

    def queue(self, body: dict[str, Any]) -> None:
        """Queues a job. It is stored when this returns."""
        self._ask("POST", "/v0/queue_command", json=body)

    def task(self, task_id: str) -> dict[str, Any] | None:
        """The task status object, or `None` for an id that the daemon does not know."""
        return cast("dict[str, Any] | None", self._ask("GET", self._path(task_id)).json())

    def kill(self, task_id: str) -> None:
        """Ends a job."""
        self._ask("DELETE", self._path(task_id))

    def events(self, since: int | str, wait: int = 0) -> dict[str, Any]:
        """What changed after `since`: `events`, `next` and `anew`; with `"last"` only where to begin."""
        answer = self._ask("GET", "/v0/events", params={"since": since, "wait": wait})
        return cast("dict[str, Any]", answer.json())

    def log(self, task_id: str) -> str:
        """The ends of what a job wrote."""
        return self._ask("GET", f"{self._path(task_id)}/log").text

    def log_url(self, task_id: str) -> str:
        """Where a browser finds it."""
        return f"{self.url}{self._path(task_id)}/log"

    def why(self, task_id: str) -> str | None:
        """Why a job waits; `None` where the daemon does not say."""
        try:
            queue = self._ask("GET", "/v0/queue", params={"task_id": task_id}).json()["queue"]
            return cast(str, queue[0]["reason"]["message"])
        except (requests.RequestException, ValueError, LookupError, TypeError):
            return None

    @staticmethod
    def _path(task_id: str) -> str:
        return f"/v0/task/{quote(task_id, safe='')}"

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        answer = self._session.request(method, self.url + path, timeout=DEADLINE, **more)
        answer.raise_for_status()
        return answer
