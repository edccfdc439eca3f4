"""HTTP client of the daemon's workflow port.

Every call has a timeout and raises what `requests` raises: `ConnectionError`, `Timeout` or
`ChunkedEncodingError` (an incomplete body) when the daemon is unreachable, `HTTPError` for an error response,
`ValueError` for a response that is not the expected JSON.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from logging import Logger
from typing import Any, TypeVar, cast
from urllib.parse import quote

import requests
from airflow.configuration import conf

DEFAULT_URL = "http://localhost:11000"
#: Seconds for a connection, and between two parts of a response.
TIMEOUT = (3.05, 10.0)
#: Maximum bytes of a container's output in one response.
MAX_CHUNK = 1 << 20

#: The daemon is unreachable; a retry may help.
UNREACHABLE = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)
#: Status codes after which a retry may help: a proxy cannot reach the daemon, or leader or store is missing.
TRANSIENT_STATUS = (502, 503, 504)
#: As above, for queueing a job: the queue may also be full.
BUSY_STATUS = (429, *TRANSIENT_STATUS)

T = TypeVar("T")

#: States of active tasks.
LIVE = frozenset({"TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING"})
FINISHED = "TASK_FINISHED"


def setting(key: str) -> str | None:
    """A key of the section `[cluster]` or `[mesos]`; the first one wins."""
    for section in ("cluster", "mesos"):
        value = conf.get(section, key, fallback=None)
        # The output of a command (`api_password_cmd`) ends with a line break.
        if value and value.strip():
            return cast(str, value.strip())
    return None


class Daemon:
    """A client. Do not share it between threads."""

    def __init__(self, url: str | None = None, max_seconds: float | None = None) -> None:
        """Creates a client.

        `url`: the daemon's address; by default the configured one. `max_seconds`: the maximum time of a
        whole call. Without it a call may take longer than `TIMEOUT`, because a name is slow to resolve or a
        response arrives byte by byte.
        """
        self.url = (url or setting("operator_api_url") or DEFAULT_URL).rstrip("/")
        self.max_seconds = max_seconds
        username, password = setting("api_username"), setting("api_password")
        self._auth = (username, password) if username and password else None
        self._session = requests.Session()

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
        status = self._request("GET", self._path(task_id)).json()
        if not status:
            return None
        return _object(status, status=dict)

    def kill(self, task_id: str) -> None:
        """Kills a job."""
        self._request("DELETE", self._path(task_id))

    def kill_within(self, task_id: str, seconds: float, interval: float, log: Logger) -> None:
        """Kills a job, with retries while that may help, and logs the result. An unknown job is ignored."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self.kill(task_id)
            except requests.RequestException as error:
                if is_transient(error) and time.monotonic() + interval < deadline:
                    time.sleep(interval)
                    continue
                if status_of(error) != requests.codes.not_found:
                    log.warning("Killing cluster task %s failed; it may still run: %s", task_id, error)
            else:
                log.info("Cluster task %s killed", task_id)
            return

    def events(self, since: int | str, wait: int = 0) -> dict[str, Any]:
        """Changes after `since`: `events`, `next` and `reset`; `"last"` returns only the current position."""
        answer = self._request("GET", "/v0/events", params={"since": since, "wait": wait})
        return _object(answer.json(), events=list, next=int)

    def log(self, task_id: str) -> str:
        """The end of both output streams of a job: at most `MAX_CHUNK` bytes of each."""
        return self._request("GET", f"{self._path(task_id)}/log", params={"length": MAX_CHUNK}).text

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
        return cast("list[dict[str, Any]]", _object(answer.json(), queue=list)["queue"])

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
        session = self._session
        # Proxies of the environment are for other sites: they must not receive the credentials.
        direct = {"http": "", "https": ""}

        def send() -> requests.Response:
            return session.request(
                method, self.url + path, auth=self._auth, timeout=TIMEOUT, proxies=direct, **more
            )

        if self.max_seconds is None:
            answer = send()
        else:
            try:
                answer = within(self.max_seconds, send)
            except TimeoutError:
                # The abandoned thread still uses the session.
                self._session = requests.Session()
                raise requests.exceptions.Timeout(f"no response within {self.max_seconds:g} s") from None
        answer.raise_for_status()
        return answer


def within(seconds: float, call: Callable[[], T]) -> T:
    """Calls in a thread, and raises `TimeoutError` if that takes longer. The thread is then abandoned."""
    outcome: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((call(), None))
        except Exception as error:
            outcome.put((None, error))

    threading.Thread(target=run, name="transom-request", daemon=True).start()
    try:
        value, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return cast("T", value)


def _object(value: Any, **members: type) -> dict[str, Any]:
    """A response that must be an object with these members."""
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {str(value)[:100]!r}")
    for name, kind in members.items():
        if not isinstance(value.get(name), kind):
            raise ValueError(
                f"expected {name!r} in the response to be a {kind.__name__}: {str(value)[:100]!r}"
            )
    return value


def is_transient(error: Exception) -> bool:
    """Whether a retry of a look-up may help."""
    return isinstance(error, UNREACHABLE) or (
        isinstance(error, requests.RequestException) and status_of(error) in TRANSIENT_STATUS
    )


def status_of(error: requests.RequestException) -> int | None:
    """The HTTP status of an error response; `None` without a response."""
    return None if error.response is None else error.response.status_code


def cause(status: dict[str, Any]) -> str:
    """The message of a status or an event, and its reason."""
    message, reason = status.get("message") or "", status.get("reason") or ""
    return f"{message} ({reason})" if message and reason else str(message or reason)


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
