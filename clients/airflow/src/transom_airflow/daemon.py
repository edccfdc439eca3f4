"""HTTP client of the daemon's workflow port.

Every call has a timeout and raises what `requests` raises: `ConnectionError` and `Timeout` when the daemon
is unreachable, `HTTPError` for an error response, `ValueError` for a response that is not JSON.
"""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

import requests
from airflow.configuration import conf

DEFAULT_URL = "http://localhost:11000"
TIMEOUT = 30.0
#: Maximum bytes of a container's output in one response.
MAX_CHUNK = 1 << 20

#: The daemon is unreachable; a retry may help.
UNREACHABLE = (requests.exceptions.ConnectionError, requests.exceptions.Timeout)

#: States of active tasks.
LIVE = frozenset({"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"})
FINISHED = "TASK_FINISHED"


def setting(key: str) -> str | None:
    """A key of the section `[cluster]` or `[mesos]`; the first one wins."""
    for section in ("cluster", "mesos"):
        value = conf.get(section, key, fallback=None)
        if value:
            return cast(str, value)
    return None


class Daemon:
    """A client. Do not share it between threads."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: the daemon's address; by default the configured one."""
        self.url = (url or setting("operator_api_url") or DEFAULT_URL).rstrip("/")
        self._session = requests.Session()
        username, password = setting("api_username"), setting("api_password")
        if username and password:
            self._session.auth = (username, password)

    def queue(self, body: dict[str, Any]) -> bool:
        """Queues a job; it is stored when this returns.

        `body` has an id, `unique` and a `request_key`. The same key queues nothing new, so it is safe to
        repeat the call after a lost response. `False`: the id has an active run of another request.
        """
        try:
            self._request("POST", "/v0/queue_command", json=body)
        except requests.HTTPError as error:
            if status_of(error) != requests.codes.conflict:
                raise
            owner = (self.task(body["airflow_task_id"]) or {}).get("request_key")
            return owner in (None, body["request_key"])
        return True

    def task(self, task_id: str) -> dict[str, Any] | None:
        """The task status object, or `None` for an unknown id."""
        return cast("dict[str, Any] | None", self._request("GET", self._path(task_id)).json())

    def kill(self, task_id: str) -> None:
        """Kills a job."""
        self._request("DELETE", self._path(task_id))

    def events(self, since: int | str, wait: int = 0) -> dict[str, Any]:
        """Changes after `since`: `events`, `next` and `reset`; `"last"` returns only the current position."""
        answer = self._request("GET", "/v0/events", params={"since": since, "wait": wait})
        return cast("dict[str, Any]", answer.json())

    def log(self, task_id: str) -> str:
        """The end of both output streams of a job."""
        return self._request("GET", f"{self._path(task_id)}/log").text

    def output(self, task_id: str, stream: str, offset: int) -> tuple[bytes, int]:
        """A chunk of `stdout` or `stderr` of a job, and the offset of the next chunk."""
        params: dict[str, str | int] = {"stream": stream, "offset": offset, "length": MAX_CHUNK}
        answer = self._request("GET", f"{self._path(task_id)}/log", params=params)
        data, following = answer.content, answer.headers.get("Transom-Next-Offset", "")
        return data, int(following) if following.isdigit() else offset + len(data)

    def log_url(self, task_id: str) -> str:
        """The address of the log for browsers."""
        return f"{self.url}{self._path(task_id)}/log"

    def pending(self, limit: int) -> list[dict[str, Any]]:
        """The pending jobs, each with its `reason`; at most `limit`."""
        answer = self._request("GET", "/v0/queue", params={"limit": limit})
        return cast("list[dict[str, Any]]", answer.json()["queue"])

    def pending_reason(self, task_id: str) -> dict[str, Any] | None:
        """Why a job is pending: `code`, `message`, `unsatisfied_constraints`; `None` if unknown."""
        try:
            queue = self._request("GET", "/v0/queue", params={"task_id": task_id}).json()["queue"]
            reason = queue[0]["reason"]
            return cast("dict[str, Any]", reason) if reason["message"] else None
        except (requests.RequestException, ValueError, LookupError, TypeError):
            return None

    @staticmethod
    def _path(task_id: str) -> str:
        return f"/v0/task/{quote(task_id, safe='')}"

    def _request(self, method: str, path: str, **more: Any) -> requests.Response:
        # Proxies of the environment are for other sites: they must not receive the credentials.
        direct = {"http": "", "https": ""}
        answer = self._session.request(method, self.url + path, timeout=TIMEOUT, proxies=direct, **more)
        answer.raise_for_status()
        return answer


def status_of(error: requests.RequestException) -> int | None:
    """The HTTP status of an error response; `None` without a response."""
    return None if error.response is None else error.response.status_code


def detail(error: requests.RequestException) -> str:
    """The message of an error response, and each invalid field."""
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
