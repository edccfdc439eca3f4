"""Follows a queued job to its end."""

from __future__ import annotations

import time
from logging import Logger, getLogger
from typing import Any

import requests

from .daemon import FINISHED, LIVE, Daemon, cause, detail, is_transient
from .output import Output

#: Seconds until the first request for the reason of a pending job, and between two requests.
FIRST_REASON, REASON_INTERVAL = 3.0, 10.0


class Limits:
    """The timeouts of a task. Plain values, so that a trigger can be serialized with them."""

    def __init__(
        self,
        begun: float,
        startup: float | None,
        waiting: float | None,
        running: float | None,
        since: float | None = None,
    ) -> None:
        """`since`: when the task was first seen running; like `begun`, in seconds since the epoch."""
        self.begun, self.startup, self.waiting, self.running, self.since = (
            begun,
            startup,
            waiting,
            running,
            since,
        )

    def passed(self, state: str | None) -> bool:
        """Whether a task that is now in this state has exceeded a timeout."""
        now = time.time()
        if state == "TASK_RUNNING" and self.since is None:
            self.since = now
        if self.since is not None and self.running is not None:
            return now - self.since >= self.running
        if self.startup is not None and now - self.begun >= self.startup:
            return True
        return self.since is None and self.waiting is not None and now - self.begun >= self.waiting

    def over_immediately(self) -> bool:
        """Whether the timeout is zero."""
        return self.startup is not None and self.startup <= 0 and self.running is None

    def values(self) -> list[float | None]:
        """The values as arguments of `__init__`."""
        return [self.begun, self.startup, self.waiting, self.running, self.since]


class Follow:
    """Polls a job until it ends.

    `log` receives every new state, the reason while the job is pending, and, with `output`, the output of
    the container.
    """

    def __init__(
        self,
        daemon: Daemon,
        task_id: str,
        limits: Limits,
        log: Logger | None = None,
        output: Output | None = None,
    ) -> None:
        self.daemon, self.task_id, self.limits, self.output = daemon, task_id, limits, output
        self.log = log or getLogger(__name__)
        self._state: str | None = None
        self._is_unreachable = False
        self._reason: Any = None
        self._next_reason_at = time.monotonic() + FIRST_REASON

    def poll(self) -> dict[str, Any] | None:
        """Returns the outcome: `task_id`, `status`, `error`, `kill`, `read`; `None` for an active job."""
        if self.limits.over_immediately():
            return self._outcome(error=f"Timed out waiting for Mesos task {self.task_id}", kill=True)
        state, unreachable = None, None
        try:
            status = self.daemon.task(self.task_id)
            if status is not None:
                state = status["status"].get("state")
            self._note(state, status)
        except (requests.RequestException, ValueError, LookupError, TypeError, AttributeError) as error:
            if not is_transient(error):
                text = detail(error) if isinstance(error, requests.RequestException) else ""
                text = f" ({text})" if text else ""
                return self._outcome(
                    error=f"Unable to read Mesos task {self.task_id}: {error}{text}; its container is killed",
                    kill=True,
                )
            unreachable = error  # Polling continues until the timeout.
            self._state = None
            self._note_unreachable(error)
        else:
            if state == FINISHED:
                return self._outcome(status=status)
            if status is not None and state is not None and state not in LIVE:
                return self._outcome(error=self._failure(state, status["status"]))
        if self.limits.passed(state):
            why = self.daemon.pending_reason(self.task_id) if state == "TASK_STAGING" else None
            because = f" (pending: {why['message']})" if why else ""
            if unreachable is not None:
                because = f" (daemon {self.daemon.url} unreachable: {unreachable})"
            return self._outcome(error=f"Timed out waiting for Mesos task {self.task_id}{because}", kill=True)
        return None

    def _note_unreachable(self, error: Exception) -> None:
        """Logs once that polling continues without answers."""
        if not self._is_unreachable:
            self.log.warning(
                "Daemon %s unreachable; still following %s: %s", self.daemon.url, self.task_id, error
            )
        self._is_unreachable = True

    def _note(self, state: str | None, status: dict[str, Any] | None) -> None:
        """Logs a new state or reason, and copies new output."""
        self._is_unreachable = False
        if status is not None and state is not None and state != self._state:
            agent = (status["status"].get("agent_id") or {}).get("value")
            self.log.info("%s is in %s%s", self.task_id, state, f" on agent {agent}" if agent else "")
        self._state = state
        if state == "TASK_STAGING" and time.monotonic() >= self._next_reason_at:
            self._next_reason_at = time.monotonic() + REASON_INTERVAL
            why = self.daemon.pending_reason(self.task_id)
            # The message is not compared, because its counts change all the time.
            kind = why and [
                why.get(key) for key in ("code", "unsatisfied_constraints", "unsatisfied_resources")
            ]
            if why and kind != self._reason:
                self._reason = kind
                self.log.warning("%s is pending: %s", self.task_id, why["message"])
        elif state == "TASK_RUNNING" and self.output is not None:
            self.output.copy()

    def _failure(self, state: str, status: dict[str, Any]) -> str:
        """Describes a failure in one sentence: task, state, reason, agent and log."""
        reason = cause(status) or "the cluster gave no reason"
        agent = (status.get("agent_id") or {}).get("value")
        place = f" on agent {agent}" if agent else ""
        log = f". Its output: {self.daemon.log_url(self.task_id)}" if agent else ""
        return f"Mesos task {self.task_id} finished in state {state}: {reason}{place}{log}"

    def _outcome(self, status: Any = None, error: str | None = None, kill: bool = False) -> dict[str, Any]:
        if self.output is not None and self._state not in (None, "TASK_STAGING"):
            self.output.copy(last=True)
        read = self.output.read if self.output is not None else None
        return {"task_id": self.task_id, "status": status, "error": error, "kill": kill, "read": read}
