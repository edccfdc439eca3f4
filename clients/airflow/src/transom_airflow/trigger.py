"""Waits for a task in the triggerer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from .daemon import Daemon
from .follow import Follow, Limits


class ClusterTrigger(BaseTrigger):  # type: ignore[misc]
    """Fires when a task has ended, or has overrun a limit."""

    def __init__(
        self, task_id: str, limits: Limits | list[float | None], url: str, poll_interval: float
    ) -> None:
        super().__init__()
        self.job = task_id
        self.limits = limits if isinstance(limits, Limits) else Limits(*limits)  # type: ignore[arg-type]
        self.url, self.poll_interval = url, poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """How the triggerer makes it anew."""
        return (
            "transom_airflow.trigger.ClusterTrigger",
            {
                "task_id": self.job,
                "limits": self.limits.values(),
                "url": self.url,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Looks until there is an outcome."""
        follow = Follow(Daemon(self.url), self.job, self.limits)
        while True:
            outcome = await asyncio.to_thread(follow.look)
            if outcome is not None:
                yield TriggerEvent(outcome)
                return
            await asyncio.sleep(self.poll_interval)
