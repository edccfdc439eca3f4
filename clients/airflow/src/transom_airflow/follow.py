"""A queued task, followed to its end."""

from __future__ import annotations

import time
from typing import Any

import requests

from .daemon import AWAY, FINISHED, LIVE, Daemon


class Limits:
    """When a task has to have begun and ended. Plain values, so that a trigger can take them along."""

    def __init__(
        self,
        begun: float,
        startup: float | None,
        waiting: float | None,
        running: float | None,
        since: float | None = None,
    ) -> None:
        """`since`: when it was first seen running, in seconds since the epoch as `begun`."""
        self.begun, self.startup, self.waiting, self.running, self.since = (
            begun,
            startup,
            waiting,
            running,
            since,
        )

    def passed(self, state: str | None) -> bool:
        """Whether a task that is in this state now has overrun a limit."""
        now = time.time()
        if state == "TASK_RUNNING" and self.since is None:
            self.since = now
        if self.since is not None and self.running is not None:
            return now - self.since >= self.running
        if self.startup is not None and now - self.begun >= self.startup:
            return True
        return self.since is None and self.waiting is not None and now - self.begun >= self.waiting

    def over_at_once(self) -> bool:
        """Whether there is no time to look at all."""
        return self.startup is not None and self.startup <= 0 and self.running is None

    def values(self) -> list[float | None]:
        """As `__init__` takes them."""
        return [self.begun, self.startup, self.waiting, self.running, self.since]


class Follow:
    """A task on its way to its end, one look at a time."""

    def __init__(self, daemon: Daemon, task_id: str, limits: Limits) -> None:
        self.daemon, self.task_id, self.limits = daemon, task_id, limits

    def look(self) -> dict[str, Any] | None:
        """`None` while it goes on, else what became of it: `task_id`, `status`, `error`, `kill`."""
        if self.limits.over_at_once():
            return self._outcome(error=f"Timed out waiting for Mesos task {self.task_id}", kill=True)
        state, away = None, None
        try:
            status = self.daemon.task(self.task_id) or {}
            state = status.get("status", {}).get("state")
        except AWAY as error:
            away = error  # It keeps polling until its limit.
        except (requests.RequestException, ValueError, AttributeError) as error:
            return self._outcome(error=f"Unable to read Mesos task {self.task_id}: {error}")
        else:
            if state == FINISHED:
                return self._outcome(status=status)
            if state is not None and state not in LIVE:
                return self._outcome(error=f"Mesos task {self.task_id} finished in state {state}: {status}")
        if self.limits.passed(state):
            why = self.daemon.why(self.task_id) if state == "TASK_STAGING" else None
            because = f" (it waits: {why})" if why else ""
            if away is not None:
                because = f" (the daemon at {self.daemon.url} cannot be reached: {away})"
            return self._outcome(error=f"Timed out waiting for Mesos task {self.task_id}{because}", kill=True)
        return None

    def _outcome(self, status: Any = None, error: str | None = None, kill: bool = False) -> dict[str, Any]:
        return {"task_id": self.task_id, "status": status, "error": error, "kill": kill}
