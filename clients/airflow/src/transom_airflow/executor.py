"""Airflow's tasks as containers on the cluster (Airflow 3.0 and later).

The daemon queues, places and tracks jobs. This class queues workloads there and reports their states to
Airflow. The id of a job is the id of the task's try, so a new scheduler finds it. Within a try Airflow may
queue a task several times (it was deferred, or revoked while pending): each time has its own request key.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import requests
from airflow.configuration import conf
from airflow.executors.base_executor import BaseExecutor
from airflow.utils.state import TaskInstanceState

from .daemon import FINISHED, LIVE, UNREACHABLE, Daemon, detail, status_of

if TYPE_CHECKING:
    from airflow.executors import workloads
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey

#: Seconds that a stopping scheduler waits for its tasks.
SHUTDOWN_TIMEOUT = 30.0
#: Seconds between two requests for the reasons of pending tasks, and after which any reason is reported:
#: an unsatisfied constraint is reported immediately.
REASON_INTERVAL = 10.0
REASON_DELAY = 60.0
#: Maximum pending jobs per request.
MAX_PENDING = 10_000
#: The part of a token's lifetime reserved for the start of the container, and its maximum in seconds.
START_SHARE, MAX_START_SECONDS = 0.2, 120.0
#: Status codes after which a workload is queued again: the queue is full, or leader or store is missing.
RETRY_STATUS = (429, 502, 503, 504)
#: Settings, none of them secret, that are passed to a task's process.
PASSED_SETTINGS = (
    ("core", "execution_api_server_url"),
    ("logging", "logging_level"),
    ("logging", "log_filename_template"),
)
#: The valid keys of `executor_config`: fields of a job, and the two that autoscalers read.
CONFIG_KEYS = (
    "architecture",
    "attributes",
    "container_sock",
    "container_type",
    "cpus",
    "disk",
    "docker_sock",
    "environment",
    "force_pull",
    "gpus",
    "image",
    "instance_type",
    "kill_grace",
    "labels",
    "max_runtime",
    "max_wait",
    "mem_limit",
    "memlimit",
    "network_mode",
    "ports",
    "user",
    "volumes",
)


def job_id(ti: Any) -> str:
    """The job id of a try of a task."""
    return f"airflow.{ti.id}"


def check_config(config: Any) -> dict[str, Any]:
    """A task's `executor_config`; a `ValueError` names every unknown key, and the most similar valid one."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ValueError(f"executor_config is a {type(config).__name__}; expected a dict")
    problems = []
    for key in config:
        if key not in CONFIG_KEYS:
            [nearest] = difflib.get_close_matches(str(key), CONFIG_KEYS, 1, 0.0)
            problems.append(f"executor_config has no key {key!r}; did you mean {nearest!r}?")
    if not isinstance(config.get("environment") or {}, dict):
        problems.append("executor_config['environment'] is not a dict of strings")
    if problems:
        raise ValueError("; ".join(problems))
    return dict(config)


def pending_limit(token: str) -> float:
    """Returns the maximum seconds that a job with this workload token may be pending.

    The token has to be valid when the container has started. It contains its expiry, which with Airflow 3.3
    is `[scheduler] task_queued_timeout` after the task was queued.
    """
    life = left = conf.getfloat("scheduler", "task_queued_timeout", fallback=600.0)
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        left = float(claims["exp"]) - time.time()
        life = float(claims["exp"]) - float(claims.get("iat", time.time()))
    except (LookupError, ValueError, TypeError):
        pass  # A token without an expiry.
    return float(left - min(life * START_SHARE, MAX_START_SECONDS))


@dataclass
class _Job:
    """A queued job that has not ended."""

    key: TaskInstanceKey
    #: Stored by Airflow as the try's `external_executor_id`.
    info: str
    #: The task's log file, below the folder of logs.
    log_path: str | None = None
    #: Whether the job was launched.
    launched: bool = False
    #: The last reported reason without its counts, and its message.
    reason: Any = None
    reason_message: str | None = None


class ClusterExecutor(BaseExecutor):  # type: ignore[misc]
    """Runs each workload in its own container."""

    is_local = False
    is_production = True
    serve_logs = False
    #: Airflow stores an id before it queues a workload; it is the request key.
    pre_assigns_external_executor_id: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Airflow's API server creates an executor only to read logs, and never starts it."""
        super().__init__(*args, **kwargs)
        self._cursor: int | None = None
        self._jobs: dict[str, _Job] = {}
        # Jobs adopted while the daemon was unreachable: job id to request key, if Airflow has one.
        self._unconfirmed: dict[str, str | None] = {}
        self._blocked: set[TaskInstanceKey] = set()
        self._unreachable = False
        self._next_reasons_at = 0.0
        # Events that Airflow has not stored yet. Airflow drops its references before it stores them.
        self._unsaved: list[Any] = []

    def start(self) -> None:
        """Sends no request: the daemon may still be starting."""

    @cached_property
    def daemon(self) -> Daemon:
        """The daemon's client in the scheduler process."""
        return Daemon()

    def _position(self) -> int:
        """The position in the event feed, read before any task is queued so that no state is missed."""
        if self._cursor is None:
            self._cursor = int(self.daemon.events("last")["next"])
        return self._cursor

    def _process_workloads(self, workloads: Sequence[workloads.All]) -> None:
        for workload in workloads:
            key = workload.ti.key
            task_id = job_id(workload.ti)
            try:
                body = self.body(workload)
                if body["max_wait"] <= 0:
                    self._block(key, f"{task_id} has a token that expires too soon; Airflow queues it again")
                    continue
                self._position()
                if not self.daemon.queue(body):
                    self._block(key, f"{task_id} waits until an earlier run of the same try has ended")
                    continue
            except UNREACHABLE as error:
                # The workload stays queued here and is sent again.
                self._warn_unreachable(error)
                return
            except requests.HTTPError as error:
                if status_of(error) in RETRY_STATUS:
                    self._warn_unreachable(error)
                    return
                self._refuse(workload, f"the daemon rejected the task ({error}): {detail(error)}")
                continue
            except (requests.RequestException, ValueError, TypeError) as error:
                self._refuse(workload, str(error))
                continue
            self.queued_tasks.pop(key, None)
            self._blocked.discard(key)
            self.running.add(key)
            info = getattr(workload.ti, "external_executor_id", None) or task_id
            self._jobs[task_id] = _Job(key, info, getattr(workload, "log_path", None))
            # The workload occupies a slot of the executor from now on, because the daemon has queued it.
            self.change_state(key, TaskInstanceState.QUEUED, info, remove_running=False)

    def _block(self, key: TaskInstanceKey, message: str) -> None:
        """Keeps a workload queued here."""
        if key not in self._blocked:
            self._blocked.add(key)
            self.log.warning("%s", message)

    def _refuse(self, workload: Any, message: str) -> None:
        """Fails a task that cannot be queued."""
        key = workload.ti.key
        self.queued_tasks.pop(key, None)
        self._blocked.discard(key)
        self._note(key, getattr(workload, "log_path", None), "not queued", message, "error")
        self.fail(key, info=message)

    def body(self, workload: Any) -> dict[str, Any]:
        """Creates the job of a workload, with the workload as one argument and no secret of this process."""
        ti = workload.ti
        environment = {}
        for section, name in PASSED_SETTINGS:
            value = conf.get(section, name, fallback=None)
            if value:
                environment[f"AIRFLOW__{section.upper()}__{name.upper()}"] = value
        config = check_config(ti.executor_config)
        environment.update(config.get("environment") or {})
        as_json = workload.model_dump_json()
        limits = [pending_limit(getattr(workload, "token", ""))]
        if config.get("max_wait") is not None:
            limits.append(float(config["max_wait"]))
        body = {
            "airflow_task_id": job_id(ti),
            "unique": True,
            # Unique per workload, and the same in every attempt to send it.
            "request_key": getattr(ti, "external_executor_id", None)
            or hashlib.sha256(as_json.encode()).hexdigest(),
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
                as_json,
            ],
            "environment": environment,
            "executor_config": config,
            "priority": ti.priority_weight,
            "max_wait": min(limits),
        }
        try:
            json.dumps(body)
        except TypeError as error:
            raise ValueError(f"executor_config cannot be sent as JSON: {error}") from error
        return body

    def sync(self) -> None:
        """Reports changed states to Airflow."""
        self._unsaved = list(self._task_event_logs)
        try:
            self._check_unconfirmed()
            while True:
                page = self.daemon.events(self._position())
                for event in page["events"]:
                    self._on_state(event["task_id"], event["state"], event.get("message", ""))
                self._cursor = page["next"]
                if not page["events"]:
                    break
            self._report_reasons()
        except (requests.RequestException, ValueError, LookupError) as error:
            self._warn_unreachable(error)
        else:
            self._unreachable = False

    def _on_state(self, task_id: str, state: str, message: str) -> None:
        job = self._jobs.get(task_id)
        if job is None:
            return
        if state in LIVE:
            job.launched |= state != "TASK_STAGING"
            if state == "TASK_RUNNING":
                self.running_state(job.key, job.info)
            return
        del self._jobs[task_id]
        self._unconfirmed.pop(task_id, None)
        info = f"{state} {message}".strip()
        if state == FINISHED:
            self.success(job.key, info=info)
        else:
            if job.launched:
                info += f". Output of its container: {self.daemon.log_url(task_id)}"
            elif job.reason_message:
                info += f". Pending reason: {job.reason_message}"
            self.fail(job.key, info=info)

    def _report_reasons(self) -> None:
        """Reports why tasks are pending, once for each reason."""
        pending = {task_id: job for task_id, job in self._jobs.items() if not job.launched}
        now = time.monotonic()
        if not pending or now < self._next_reasons_at:
            return
        self._next_reasons_at = now + REASON_INTERVAL
        for entry in self.daemon.pending(MAX_PENDING):
            job = pending.get(entry["task_id"])
            if job is None:
                continue
            why = entry["reason"]
            # The message is not compared, because its counts change all the time.
            reason = (why["code"], tuple(why["unsatisfied_constraints"]))
            if reason != job.reason and (why["unsatisfied_constraints"] or entry["waited"] >= REASON_DELAY):
                job.reason, job.reason_message = reason, why["message"]
                self._note(job.key, job.log_path, "pending", why["message"], "warning")

    def _note(self, key: TaskInstanceKey, log_path: str | None, event: str, message: str, level: str) -> None:
        """Adds to the task's events and, if this scheduler shares the log folder, to its log."""
        self.log.warning("%s: %s: %s", key, event, message)
        self.log_task_event(event=event, extra=message, ti_key=key)
        self._unsaved.extend(self._task_event_logs)
        if log_path is None:
            return
        line = {
            "timestamp": datetime.now(timezone.utc).isoformat(),
            "level": level,
            "event": f"{event}: {message}",
            "logger": __name__,
        }
        try:
            # Imported here: Airflow 2 imports this module to list executors and has no such function.
            from airflow.sdk.log import init_log_file  # noqa: PLC0415

            # Next to the log of the task's process: Airflow shows all files whose names begin like that one.
            with init_log_file(f"{log_path}.cluster.log").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        except OSError as error:
            self.log.debug("Writing the log of %s failed: %s", key, error)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Adopts the tasks that the daemon has; returns the others, which Airflow runs again."""
        not_adopted = []
        for ti in tis:
            task_id = job_id(ti)
            external = getattr(ti, "external_executor_id", None)
            # Before Airflow 3.3 the external id is the job id that this executor reported.
            request_key = None if external == task_id else external
            self._jobs[task_id] = _Job(ti.key, external or task_id)
            self.running.add(ti.key)
            try:
                self._position()
                status = self.daemon.task(task_id)
            except (requests.RequestException, ValueError) as error:
                # The task may be running, so it must not run again. It is looked up once the daemon answers.
                self._warn_unreachable(error)
                self._unconfirmed[task_id] = request_key
                continue
            if _is_of(status, request_key):
                self._on_status(task_id, status)
            else:
                del self._jobs[task_id]
                self.running.discard(ti.key)
                not_adopted.append(ti)
        return not_adopted

    def _on_status(self, task_id: str, status: Any) -> None:
        """Handles the status from a look-up like an event."""
        current = status["status"]
        self._on_state(task_id, current["state"], current.get("message", ""))

    def _check_unconfirmed(self) -> None:
        for task_id, request_key in list(self._unconfirmed.items()):
            self._position()
            status = self.daemon.task(task_id)
            if _is_of(status, request_key):
                self._on_status(task_id, status)
            else:
                self._on_state(task_id, "TASK_LOST", "the daemon has no such task")
            self._unconfirmed.pop(task_id, None)

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Kills a task that has been queued for too long, and drops it."""
        task_id = job_id(ti)
        self._jobs.pop(task_id, None)
        self._unconfirmed.pop(task_id, None)
        self._blocked.discard(ti.key)
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        try:
            self.daemon.kill(task_id)
        except requests.RequestException as error:
            if status_of(error) != requests.codes.not_found:
                self.log.warning("%s was revoked, but killing it failed: %s", task_id, error)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:
        """The output of the container. The API server calls this from several threads."""
        task_id = job_id(ti)
        daemon = Daemon()
        try:
            return [f"Container of {task_id}: {daemon.log_url(task_id)}"], [daemon.log(task_id)]
        except requests.RequestException as error:
            text = detail(error)
            return [f"Reading the log of {task_id} failed: {error}" + (f" ({text})" if text else "")], []

    def end(self) -> None:
        """Waits for running tasks, up to a timeout. The next scheduler adopts those that are left."""
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT
        while self._jobs and time.monotonic() < deadline:
            self.sync()
            time.sleep(1.0)

    def terminate(self) -> None:
        """Leaves tasks running in the cluster; the next scheduler adopts them."""

    def _warn_unreachable(self, error: Exception) -> None:
        if not self._unreachable:
            self.log.warning("Daemon %s unreachable; retrying: %s", self.daemon.url, error)
        self._unreachable = True

    def debug_dump(self) -> None:
        """Logs the known tasks."""
        super().debug_dump()
        self.log.info("tasks in the cluster: %s", sorted(self._jobs))


def _is_of(status: dict[str, Any] | None, request_key: str | None) -> bool:
    """Whether this run was queued with this key. True if one of the two keys is unknown."""
    if status is None:
        return False
    queued_with = status.get("request_key")
    return None in (request_key, queued_with) or request_key == queued_with
