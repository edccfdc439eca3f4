"""Airflow's tasks as containers on the cluster (Airflow 3.0 and later).

The daemon keeps the queue, finds places and remembers states. This class hands workloads over and passes
on what becomes of them. A task is known to the daemon by the id of its try, so a new scheduler finds it.
Within a try Airflow may hand a task over several times (it was deferred, or revoked while it waited): each
of these hand-overs has a request key of its own, so that none is taken for another.
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

from .daemon import AWAY, FINISHED, LIVE, Daemon, detail, status_of

if TYPE_CHECKING:
    from airflow.executors import workloads
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.taskinstancekey import TaskInstanceKey

#: Seconds that an ending scheduler waits for its tasks.
FAREWELL = 30.0
#: Seconds between two looks at what waiting tasks wait for, and after which any reason is worth a note:
#: a condition that no agent satisfies is worth one at once.
WHY_EVERY = 10.0
WHY_AFTER = 60.0
#: Waiting jobs that are asked about at once.
MOST_WAITING = 10_000
#: Of a token's life, the part in which the container has to start; in seconds, at most.
TO_START, MOST_TO_START = 0.2, 120.0
#: Answers after which a workload is handed over again: the daemon is full, or has no leader or store now.
TRY_LATER = (429, 502, 503, 504)
#: Settings of a task's process that are no secrets.
PASSED_ON = (
    ("core", "execution_api_server_url"),
    ("logging", "logging_level"),
    ("logging", "log_filename_template"),
)
#: What `executor_config` may have: fields of a job, and the two notes that autoscalers read.
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
    """What the daemon calls a try of a task."""
    return f"airflow.{ti.id}"


def check_config(config: Any) -> dict[str, Any]:
    """A task's `executor_config`; a `ValueError` names every key that is unknown, and the nearest one."""
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
    """Seconds that a job with this workload token may wait for a place.

    The token has to be good when the container has started. It says when it ends: with Airflow 3.3
    `[scheduler] task_queued_timeout` after the task was queued.
    """
    life = left = conf.getfloat("scheduler", "task_queued_timeout", fallback=600.0)
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        left = float(claims["exp"]) - time.time()
        life = float(claims["exp"]) - float(claims.get("iat", time.time()))
    except (LookupError, ValueError, TypeError):
        pass  # Not a token that says when it ends.
    return float(left - min(life * TO_START, MOST_TO_START))


@dataclass
class _Job:
    """A job that was handed over and has not ended."""

    key: TaskInstanceKey
    #: What Airflow keeps as the try's `external_executor_id`.
    info: str
    #: The task's log file, below the folder of logs.
    log_path: str | None = None
    #: It has a place.
    placed: bool = False
    #: The reason that was noted last, without its counts, and its message.
    reason: Any = None
    why: str | None = None


class ClusterExecutor(BaseExecutor):  # type: ignore[misc]
    """Runs each workload in a container of its own."""

    is_local = False
    is_production = True
    serve_logs = False
    #: Airflow stores an id of each hand-over before it happens; it is the request key.
    pre_assigns_external_executor_id: ClassVar[bool] = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Airflow's API server makes one only to read logs, and never starts it."""
        super().__init__(*args, **kwargs)
        self._cursor: int | None = None
        self._jobs: dict[str, _Job] = {}
        # Adopted while the daemon was away: id to the request key, where Airflow has it.
        self._unsure: dict[str, str | None] = {}
        self._blocked: set[TaskInstanceKey] = set()
        self._away = False
        self._ask_why_at = 0.0
        # Events that Airflow has not stored yet: it drops its own references to them before it does.
        self._unsaved: list[Any] = []

    def start(self) -> None:
        """Nothing is asked of the daemon yet: it may still be on its way."""

    @cached_property
    def daemon(self) -> Daemon:
        """The scheduler's own client."""
        return Daemon()

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
                body = self.body(workload)
                if body["max_wait"] <= 0:
                    self._block(key, f"{task_id} has a token that expires too soon; Airflow queues it again")
                    continue
                self._place()
                if not self.daemon.queue(body):
                    self._block(key, f"{task_id} waits until an earlier run of the same try has ended")
                    continue
            except AWAY as error:
                # It stays queued here, and is handed over again.
                self._say_away(error)
                return
            except requests.HTTPError as error:
                if status_of(error) in TRY_LATER:
                    self._say_away(error)
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
            # It counts as one of those that run: its place is the daemon's to find.
            self.change_state(key, TaskInstanceState.QUEUED, info, remove_running=False)

    def _block(self, key: TaskInstanceKey, message: str) -> None:
        """Leaves a workload queued here."""
        if key not in self._blocked:
            self._blocked.add(key)
            self.log.warning("%s", message)

    def _refuse(self, workload: Any, message: str) -> None:
        """Fails a task that cannot be handed over."""
        key = workload.ti.key
        self.queued_tasks.pop(key, None)
        self._blocked.discard(key)
        self._note(key, getattr(workload, "log_path", None), "not queued", message, "error")
        self.fail(key, info=message)

    def body(self, workload: Any) -> dict[str, Any]:
        """What the daemon is asked to run: the workload as one argument, and no secret of this process."""
        ti = workload.ti
        environment = {}
        for section, name in PASSED_ON:
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
            # The same whenever this workload is handed over, and no other one's.
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
        """Passes on what has changed."""
        self._unsaved = list(self._task_event_logs)
        try:
            self._look_up_unsure()
            while True:
                page = self.daemon.events(self._place())
                for event in page["events"]:
                    self._told(event["task_id"], event["state"], event.get("message", ""))
                self._cursor = page["next"]
                if not page["events"]:
                    break
            self._note_reasons()
        except (requests.RequestException, ValueError, LookupError) as error:
            self._say_away(error)
        else:
            self._away = False

    def _told(self, task_id: str, state: str, message: str) -> None:
        job = self._jobs.get(task_id)
        if job is None:
            return
        if state in LIVE:
            job.placed |= state != "TASK_STAGING"
            if state == "TASK_RUNNING":
                self.running_state(job.key, job.info)
            return
        del self._jobs[task_id]
        self._unsure.pop(task_id, None)
        info = f"{state} {message}".strip()
        if state == FINISHED:
            self.success(job.key, info=info)
        else:
            if job.placed:
                info += f". Output of its container: {self.daemon.log_url(task_id)}"
            elif job.why:
                info += f". Pending reason: {job.why}"
            self.fail(job.key, info=info)

    def _note_reasons(self) -> None:
        """Notes why tasks wait, once for each reason."""
        waiting = {task_id: job for task_id, job in self._jobs.items() if not job.placed}
        now = time.monotonic()
        if not waiting or now < self._ask_why_at:
            return
        self._ask_why_at = now + WHY_EVERY
        for entry in self.daemon.waiting(MOST_WAITING):
            job = waiting.get(entry["task_id"])
            if job is None:
                continue
            why = entry["reason"]
            # The message has counts in it, which change all the time.
            reason = (why["code"], tuple(why["unsatisfied_constraints"]))
            if reason != job.reason and (why["unsatisfied_constraints"] or entry["waited"] >= WHY_AFTER):
                job.reason, job.why = reason, why["message"]
                self._note(job.key, job.log_path, "pending", why["message"], "warning")

    def _note(self, key: TaskInstanceKey, log_path: str | None, event: str, message: str, level: str) -> None:
        """Writes into the task's events and, where this scheduler shares the folder of logs, its log."""
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
            # Here, as Airflow 2 imports this module for a list of executors and has no such function.
            from airflow.sdk.log import init_log_file  # noqa: PLC0415

            # Beside the file of the task's own process: Airflow shows all that begin with its name.
            with init_log_file(f"{log_path}.cluster.log").open("a", encoding="utf-8") as log:
                log.write(json.dumps(line) + "\n")
        except OSError as error:
            self.log.debug("Writing the log of %s failed: %s", key, error)

    def try_adopt_task_instances(self, tis: Sequence[TaskInstance]) -> Sequence[TaskInstance]:
        """Takes up the tasks that the daemon knows; returns the others, which are to be run again."""
        strangers = []
        for ti in tis:
            task_id = job_id(ti)
            external = getattr(ti, "external_executor_id", None)
            # Before Airflow 3.3 it is the job's id, as this executor said.
            request_key = None if external == task_id else external
            self._jobs[task_id] = _Job(ti.key, external or task_id)
            self.running.add(ti.key)
            try:
                self._place()
                status = self.daemon.task(task_id)
            except (requests.RequestException, ValueError) as error:
                # A task that may well run is not run a second time: it is looked up when the daemon is back.
                self._say_away(error)
                self._unsure[task_id] = request_key
                continue
            if _is_of(status, request_key):
                self._told_status(task_id, status)
            else:
                del self._jobs[task_id]
                self.running.discard(ti.key)
                strangers.append(ti)
        return strangers

    def _told_status(self, task_id: str, status: Any) -> None:
        """What a look-up says, as if it were an event."""
        told = status["status"]
        self._told(task_id, told["state"], told.get("message", ""))

    def _look_up_unsure(self) -> None:
        for task_id, request_key in list(self._unsure.items()):
            self._place()
            status = self.daemon.task(task_id)
            if _is_of(status, request_key):
                self._told_status(task_id, status)
            else:
                self._told(task_id, "TASK_LOST", "the daemon has no such task")
            self._unsure.pop(task_id, None)

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Ends a task that has been queued for too long, and forgets it."""
        task_id = job_id(ti)
        self._jobs.pop(task_id, None)
        self._unsure.pop(task_id, None)
        self._blocked.discard(ti.key)
        self.queued_tasks.pop(ti.key, None)
        self.running.discard(ti.key)
        try:
            self.daemon.kill(task_id)
        except requests.RequestException as error:
            if status_of(error) != requests.codes.not_found:
                self.log.warning("%s was revoked, but killing it failed: %s", task_id, error)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:
        """What the container wrote. Asked by the API server, from several threads."""
        task_id = job_id(ti)
        daemon = Daemon()
        try:
            return [f"Container of {task_id}: {daemon.log_url(task_id)}"], [daemon.log(task_id)]
        except requests.RequestException as error:
            told = detail(error)
            return [f"Reading the log of {task_id} failed: {error}" + (f" ({told})" if told else "")], []

    def end(self) -> None:
        """Waits a while for what runs. It goes on without a scheduler, and the next one adopts it."""
        deadline = time.monotonic() + FAREWELL
        while self._jobs and time.monotonic() < deadline:
            self.sync()
            time.sleep(1.0)

    def terminate(self) -> None:
        """Tasks live in the cluster, and the next scheduler adopts them."""

    def _say_away(self, error: Exception) -> None:
        if not self._away:
            self.log.warning("Daemon %s unreachable; retrying: %s", self.daemon.url, error)
        self._away = True

    def debug_dump(self) -> None:
        """What is known of tasks, for the scheduler's log."""
        super().debug_dump()
        self.log.info("tasks in the cluster: %s", sorted(self._jobs))


def _is_of(status: dict[str, Any] | None, request_key: str | None) -> bool:
    """Whether this is the run that was queued with the key; one of the two may not be known."""
    if status is None:
        return False
    queued_with = status.get("request_key")
    return None in (request_key, queued_with) or request_key == queued_with
