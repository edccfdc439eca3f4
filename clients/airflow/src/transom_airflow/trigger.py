"""A trigger that waits for a job in the triggerer."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from .daemon import Daemon
from .follow import Follow, Limits
from .output import Output

#: Seconds for retries of a kill; the triggerer allows a trigger 30.
KILL_TIMEOUT = 25.0
#: Threads for requests of this module's triggers: a daemon that does not answer must not occupy those that
#: all triggers share.
POLLS = ThreadPoolExecutor(max_workers=16, thread_name_prefix="transom-poll")


class ClusterTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires when a job has ended or exceeded a timeout."""

    def __init__(
        self,
        task_id: str,
        limits: Limits | list[float | None],
        url: str,
        poll_interval: float,
        container_logs: bool = True,
    ) -> None:
        super().__init__()
        self.job = task_id
        self.limits = limits if isinstance(limits, Limits) else Limits(*limits)  # type: ignore[arg-type]
        self.url, self.poll_interval = url, poll_interval
        self.container_logs = container_logs

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """The class and the arguments with which the triggerer recreates it."""
        return (
            "transom_airflow.trigger.ClusterTrigger",
            {
                "task_id": self.job,
                "limits": self.limits.values(),
                "url": self.url,
                "poll_interval": self.poll_interval,
                "container_logs": self.container_logs,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Polls until there is an outcome."""
        daemon = Daemon(self.url)
        output = Output(daemon, self.job, self.log.info) if self.container_logs else None
        follow = Follow(daemon, self.job, self.limits, self.log, output)
        while True:
            poll = contextvars.copy_context().run
            outcome = await asyncio.get_running_loop().run_in_executor(POLLS, poll, follow.poll)
            if outcome is not None:
                yield TriggerEvent(outcome)
                return
            await asyncio.sleep(self.poll_interval)

    async def on_kill(self) -> None:
        """Kills the container of a task that was marked or cleared (Airflow 3.3 and later).

        Older triggerers do not call this; the job's timeouts in the daemon end the container then.
        """
        # The triggerer cancels this coroutine every second until it returns. A dedicated thread continues
        # regardless, and does not wait for the pool that all triggers share.
        executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="kill")
        killed = executor.submit(contextvars.copy_context().run, self._kill)
        executor.shutdown(wait=False)
        await asyncio.wait([asyncio.wrap_future(killed)])

    def _kill(self) -> None:
        Daemon(self.url).kill_within(self.job, KILL_TIMEOUT, self.poll_interval, self.log)
