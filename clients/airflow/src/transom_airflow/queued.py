"""Airflow's rows of queued tasks, which only the scheduler's process may read and change."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from airflow.utils.state import TaskInstanceState

#: Maximum ids in one query; databases limit the parameters of a statement.
MAX_IDS = 500


def task_states(ids: Collection[str]) -> dict[str, tuple[str | None, str | None]]:
    """The state and the external id of each try; a try that was cleared or deleted is missing."""
    # Imported here: Airflow 2 imports the executor to list it, and its tries have no ids.
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415
    from sqlalchemy import select  # noqa: PLC0415

    found = {}
    with _session() as session:
        all_ids = list(ids)
        for first in range(0, len(all_ids), MAX_IDS):
            some = all_ids[first : first + MAX_IDS]
            query = select(TaskInstance.id, TaskInstance.state, TaskInstance.external_executor_id)
            rows = session.execute(query.where(TaskInstance.id.in_([_as_stored(ti_id) for ti_id in some])))
            found.update({str(ti_id): (state, external) for ti_id, state, external in rows})
    return found


def to_scheduled(ti_id: str, external: str | None) -> None:
    """Makes Airflow queue a queued task again, as it does itself after `task_queued_timeout`.

    `external`: the external id with which the try was queued; a try that was queued again meanwhile has
    another one and is not changed.
    """
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415
    from airflow.utils import timezone  # noqa: PLC0415
    from sqlalchemy import update  # noqa: PLC0415

    change = update(TaskInstance).where(
        TaskInstance.id == _as_stored(ti_id), TaskInstance.state == TaskInstanceState.QUEUED
    )
    if external is not None:
        change = change.where(TaskInstance.external_executor_id == external)
    values = {
        "state": TaskInstanceState.SCHEDULED,
        "queued_dttm": None,
        "queued_by_job_id": None,
        "scheduled_dttm": timezone.utcnow(),
    }
    with _session() as session:
        session.execute(change.values(**values).execution_options(synchronize_session=False))


def _session() -> Any:
    """A session of its own, because the scheduler's loop may use the thread's."""
    from airflow.utils.session import create_session  # noqa: PLC0415

    return create_session(scoped=False)


def _as_stored(ti_id: str) -> Any:
    """An id in the type of its column: a UUID, or in older versions a text."""
    from airflow.models.taskinstance import TaskInstance  # noqa: PLC0415

    return TaskInstance.id.type.python_type(ti_id)
