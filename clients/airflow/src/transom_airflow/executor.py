"""Airflow's tasks as containers on the cluster (Airflow 3.0 and later).

The daemon keeps the queue, finds places and remembers states. This class hands workloads over and passes
on what becomes of them. A task is known to the daemon by the id of its try, so a new scheduler finds it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import requests
from airflow.configuration import conf
from airflow.executors.base_executor import BaseExecutor
from airflow.utils.state import TaskInstanceState

from .daemon import AWAY, FINISHED, LIVE, Daemon

if TYPE_CHECKING:
    from airflow.executors import workloads
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey

#: Seconds that an ending scheduler waits for its tasks.
FAREWELL = 30.0
#: Settings of a task's process that are no secrets.
PASSED_ON = (
    ("core", "execution_api_server_url"),
    ("logging", "logging_level"),
    ("logging", "log_filename_template"),
)


def job_id(ti: Any) -> str:
    """What the daemon calls a try of a task."""
    return f"airflow.{ti.id}"


class ClusterExecutor(BaseExecutor):  # type: ignore[misc]
    """Runs each workload in a container of its own."""

    is_local = False
    is_production = True
    serve_logs = False

    daemon: Daemon

    def start(self) -> None:
        """Nothing is asked of the daemon yet: it may still be on its way."""
        self.daemon = Daemon()
        self._cursor: int | None = None
        self._keys: dict[str, TaskInstanceKey] = {}
        self._unsure: set[str] = set()
        self._away = False

    def _place(self) -> int:
        """Where to go on among the daemon's events. Known before any task is, so that no state is missed."""
        if self._cursor is None:
            self._cursor = int(self.daemon.events("last")["next"])
        return self._cursor

    def _process_workloads(self, workloads: Sequence[workloads.All]) -> None:
        for workload in workloads:
            key = workload.ti.key
            task_id = job_id(workload.ti)
            try:
                self._place()
                self.daemon.queue(self.body(workload))
            except AWAY as error:
                # It stays queued here, and is handed over again.
                self._say_away(error)
                return
            except requests.RequestException as error:
                self.queued_tasks.pop(key, None)
                told = error.response.text[:500] if error.response is not None else ""
                self.fail(key, info=f"{error} {told}")
                continue
            self.queued_tasks.pop(key, None)
            self.running.add(key)
            self._keys[task_id] = key
            # It counts as one of those that run: its place is the daemon's to find.
            self.change_state(key, TaskInstanceState.QUEUED, task_id, remove_running=False)

    def body(self, workload: Any) -> dict[str, Any]:
        """What the daemon is asked to run: the workload as one argument, and no secret of this process."""
        ti = workload.ti
        environment = {}
        for section, name in PASSED_ON:
            value = conf.get(section, name, fallback=None)
            if value:
                environment[f"AIRFLOW__{section.upper()}__{name.upper()}"] = value
        config = dict(ti.executor_config or {})
        environment.update(config.get("environment") or {})
        return {
            "airflow_task_id": job_id(ti),
            "airflow_key": {
                "dag_id": ti.dag_id,
                "task_id": ti.task_id,
                "run_id": ti.run_id,
                "try_number": ti.try_number,
                "map_index": ti.map_index,
            },
            "command": [
                "python",
                "-m",
                "airflow.sdk.execution_time.execute_workload",
                "--json-string",
                workload.model_dump_json(),
            ],
            "environment": environment,
            "executor_config": config,
            "priority": ti.priority_weight,
            # Its token is no longer good then.
            "max_wait": conf.getfloat("scheduler", "task_queued_timeout", fallback=600.0),
        }

    def sync(self) -> None:
        """Passes on what has changed."""
        try:
            self._look_up_unsure()
            while True:
                page = self.daemon.events(self._place())
                for event in page["events"]:
                    self._told(event["task_id"], event["state"], event.get("message", ""))
                self._cursor = page["next"]
                if not page["events"]:
                    break
        except (requests.RequestException, ValueError) as error:
            self._say_away(error)
        else:
            self._away = False

    def _told(self, task_id: str, state: str, message: str) -> None:
        key = self._keys.get(task_id)
        if key is None:
            return
        if state in LIVE:
            if state == "TASK_RUNNING":
                self.running_state(key, task_id)
            return
        del self._keys[task_id]
        self._unsure.discard(task_id)
        info = f"{state} {message}".strip()
        if state == FINISHED:
            self.success(key, info=info)
        else:
            self.fail(key, info=info)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Takes up the tasks that the daemon knows; returns the others, which are to be run again."""
        strangers = []
        for ti in tis:
            task_id = job_id(ti)
            self._keys[task_id] = ti.key
            self.running.add(ti.key)
            try:
                self._place()
                status = self.daemon.task(task_id)
            except (requests.RequestException, ValueError) as error:
                # A task that may well run is not run a second time: it is looked up when the daemon is back.
                self._say_away(error)
                self._unsure.add(task_id)
                continue
            if status is None:
                del self._keys[task_id]
                self.running.discard(ti.key)
                strangers.append(ti)
            else:
                self._told_status(task_id, status)
        return strangers

    def _told_status(self, task_id: str, status: dict[str, Any]) -> None:
        """What a look-up says, as if it were an event."""
        told = status["status"]
        self._told(task_id, told["state"], told.get("message", ""))

    def _look_up_unsure(self) -> None:
        for task_id in list(self._unsure):
            self._place()
            status = self.daemon.task(task_id)
            if status is None:
                self._told(task_id, "TASK_LOST", "the daemon does not know this task")
            else:
                self._told_status(task_id, status)
            self._unsure.discard(task_id)

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Ends a task that has been queued for too long, and forgets it."""
        task_id = job_id(ti)
        self._keys.pop(task_id, None)
        self._unsure.discard(task_id)
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        try:
            self.daemon.kill(task_id)
        except requests.RequestException as error:
            self.log.warning("%s was revoked and may not have been killed: %s", task_id, error)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:
        """What the container wrote."""
        task_id = job_id(ti)
        try:
            return [f"Container of {task_id}"], [self.daemon.log(task_id)]
        except requests.RequestException as error:
            return [f"The log of {task_id} cannot be read: {error}"], []

    def end(self) -> None:
        """Waits a while for what runs. It goes on without a scheduler, and the next one adopts it."""
        deadline = time.monotonic() + FAREWELL
        while self._keys and time.monotonic() < deadline:
            self.sync()
            time.sleep(1.0)

    def terminate(self) -> None:
        """Tasks live in the cluster, and the next scheduler adopts them."""

    def _say_away(self, error: Exception) -> None:
        if not self._away:
            self.log.warning("The daemon at %s cannot be reached; trying again: %s", self.daemon.url, error)
        self._away = True

    def debug_dump(self) -> None:
        """What is known of tasks, for the scheduler's log."""
        super().debug_dump()
        self.log.info("tasks in the cluster: %s", sorted(self._keys))
