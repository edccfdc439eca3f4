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
#: Most bytes of a container's output in one answer.
PIECE = 1 << 20

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

    def queue(self, body: dict[str, Any]) -> bool:
        """Queues a job, which is stored when this returns.

        `body` has an id, `unique` and a `request_key`. Sent again with the same key it queues nothing
        new, so a lost answer does no harm. `False`: the id has an active run of another request.
        """
        try:
            self._ask("POST", "/v0/queue_command", json=body)
        except requests.HTTPError as error:
            if status_of(error) != requests.codes.conflict:
                raise
            owner = (self.task(body["airflow_task_id"]) or {}).get("request_key")
            return owner in (None, body["request_key"])
        return True

    def task(self, task_id: str) -> dict[str, Any] | None:
        """The task status object, or `None` for an id that the daemon does not know."""
        return cast("dict[str, Any] | None", self._ask("GET", self._path(task_id)).json())

    def kill(self, task_id: str) -> None:
        """Ends a job."""
        self._ask("DELETE", self._path(task_id))

    def events(self, since: int | str, wait: int = 0) -> dict[str, Any]:
        """What changed after `since`: `events`, `next` and `reset`; with `"last"` only where to begin."""
        answer = self._ask("GET", "/v0/events", params={"since": since, "wait": wait})
        return cast("dict[str, Any]", answer.json())

    def log(self, task_id: str) -> str:
        """The ends of what a job wrote."""
        return self._ask("GET", f"{self._path(task_id)}/log").text

    def output(self, task_id: str, stream: str, offset: int) -> tuple[bytes, int]:
        """A part of what a job wrote to `stdout` or `stderr`, and where the next part begins."""
        params: dict[str, str | int] = {"stream": stream, "offset": offset, "length": PIECE}
        answer = self._ask("GET", f"{self._path(task_id)}/log", params=params)
        data, following = answer.content, answer.headers.get("Transom-Next-Offset", "")
        return data, int(following) if following.isdigit() else offset + len(data)

    def log_url(self, task_id: str) -> str:
        """Where a browser finds it."""
        return f"{self.url}{self._path(task_id)}/log"

    def waiting(self, limit: int) -> list[dict[str, Any]]:
        """The jobs that wait, each with its `reason`; at most `limit`."""
        answer = self._ask("GET", "/v0/queue", params={"limit": limit})
        return cast("list[dict[str, Any]]", answer.json()["queue"])

    def why(self, task_id: str) -> dict[str, Any] | None:
        """Why a job waits: `code`, `message` and `unsatisfied_constraints`; `None` where the daemon does not say."""
        try:
            queue = self._ask("GET", "/v0/queue", params={"task_id": task_id}).json()["queue"]
            reason = queue[0]["reason"]
            return cast("dict[str, Any]", reason) if reason["message"] else None
        except (requests.RequestException, ValueError, LookupError, TypeError):
            return None

    @staticmethod
    def _path(task_id: str) -> str:
        return f"/v0/task/{quote(task_id, safe='')}"

    def _ask(self, method: str, path: str, **more: Any) -> requests.Response:
        answer = self._session.request(method, self.url + path, timeout=DEADLINE, **more)
        answer.raise_for_status()
        return answer


def status_of(error: requests.RequestException) -> int | None:
    """The HTTP status of an answer that is an error; `None` where there was no answer."""
    return None if error.response is None else error.response.status_code


def detail(error: requests.RequestException) -> str:
    """What the daemon wrote about a refusal: its message, and each wrong field."""
    if error.response is None:
        return ""
    try:
        body = error.response.json()
        parts = [str(body["message"])]
        for field in body.get("details") or []:
            parts.append(f"{field['path']} {', '.join(field['errors'])}")
        return "; ".join(parts)[:1000]
    except (ValueError, LookupError, TypeError, AttributeError):
        return error.response.text[:500]
