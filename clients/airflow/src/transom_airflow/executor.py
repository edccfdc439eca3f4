"""Airflow's tasks as containers on the cluster (Airflow 3.0 and later).

The daemon queues, places and tracks jobs. This class queues workloads there and reports their states to
Airflow. The id of a job is the id of the task's try, so a new scheduler finds it. Within a try Airflow may
queue a task several times (it was deferred, or revoked while pending): each time has its own request key.

Airflow calls this class in the scheduler's loop, so nothing here may block or raise: a call of the daemon
ends after a few seconds, and after a slow failure there is a pause; what a task's configuration contains
fails that task at most.
"""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import requests
from airflow.configuration import conf
from airflow.executors.base_executor import BaseExecutor
from airflow.utils.state import TaskInstanceState

from .daemon import BUSY_STATUS, FINISHED, LIVE, MAX_CHUNK, UNREACHABLE, Daemon, cause, detail, status_of
from .output import MAX_COPIED, Output
from .queued import task_states, to_scheduled

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
#: Maximum seconds of a call, and of the calls in one turn of the scheduler's loop.
CALL_SECONDS, TURN_SECONDS = 4.0, 2.0
#: The same for the calls with which a new scheduler adopts tasks.
ADOPTION_SECONDS = 10.0
#: After a failed call that took at least `SLOW_SECONDS` there is a pause of `PAUSE_FACTOR` times its
#: duration, so that a daemon that does not answer takes little of the scheduler's time.
SLOW_SECONDS, PAUSE_FACTOR = 0.5, 5.0
#: Seconds that the daemon is unreachable before that is reported for each task that waits for it.
OUTAGE_DELAY = 10.0
#: Writes to Airflow's database. The loop itself may have changes that are not committed yet, for which a
#: write of its own thread would wait until it fails: SQLite permits one writer.
WRITES = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transom-write")
#: Maximum seconds of a call for a log.
LOG_SECONDS = 10.0
#: Maximum bytes of a character in UTF-8.
MAX_BYTES_OF_CHARACTER = 4
#: Seconds between two checks whether pending tasks are still wanted.
CHECK_INTERVAL = 10.0
#: What a response of another form than expected causes.
MALFORMED = (ValueError, LookupError, TypeError, AttributeError)
#: The daemon's reason for the end of a job that was pending for too long.
MAX_WAIT = "MaxWait"
#: The part of a token's lifetime reserved for the start of the container, and its maximum in seconds.
START_SHARE, MAX_START_SECONDS = 0.2, 120.0
#: Settings, none of them secret, that are passed to a task's process.
PASSED_SETTINGS = (
    # DAGs name executors by the aliases that are configured here, and do not load without them.
    ("core", "executor"),
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
    """A task's `executor_config`; a `ValueError` names every invalid key, and the most similar valid one."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise ValueError(f"executor_config is a {type(config).__name__}; expected a dict")
    problems = []
    for key, value in config.items():
        name = f"executor_config[{key!r}]"
        if key not in CONFIG_KEYS:
            nearest = difflib.get_close_matches(str(key), CONFIG_KEYS, 1)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"expected one of {', '.join(CONFIG_KEYS)}"
            problems.append(f"executor_config has no key {key!r}; {hint}")
        elif key == "environment" and not _is_environment(value or {}):
            problems.append(f"{name} is {str(value)[:100]!r}; expected a dict of strings")
        elif key == "max_wait" and not (value is None or (_is_number(value) and value > 0)):
            problems.append(f"{name} is {str(value)[:100]!r}; expected a number of seconds above 0")
        else:
            try:
                json.dumps(value, allow_nan=False)
            except (TypeError, ValueError, RecursionError) as error:
                problems.append(f"{name} cannot be sent as JSON: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return dict(config)


def _is_environment(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for pair in value.items() for text in pair)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def execution_api_server_url() -> str | None:
    """Where a task's process reaches the API server, as Airflow's own executors find it."""
    value = conf.get("core", "execution_api_server_url", fallback=None)
    base = conf.get("api", "base_url", fallback=None)
    if not value and base and not base.startswith("/"):
        value = f"{base.rstrip('/')}/execution/"
    return value or None


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


class _InvalidError(Exception):
    """A task whose job cannot be created."""


@dataclass
class _Job:
    """A queued job that has not ended."""

    key: TaskInstanceKey
    #: Stored by Airflow as the try's `external_executor_id`.
    info: str
    #: The id of the try.
    ti_id: str
    #: The task's log file, below the folder of logs.
    log_path: str | None = None
    #: Whether `max_wait` is that of the task, and not only the lifetime of its token.
    own_max_wait: bool = False
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
        # Jobs to kill that the daemon has not confirmed.
        self._kills: set[str] = set()
        # Jobs of queued workloads that the daemon may have, because an answer was lost.
        self._uncertain: set[str] = set()
        # Jobs that ended because they were pending for too long, whose tasks Airflow has to queue again.
        self._returning: dict[str, _Job] = {}
        self._writes: dict[str, Future[None]] = {}
        # When a task with its own `max_wait` was queued first, by job id; it may be queued several times.
        self._first_queued: dict[str, float] = {}
        # When the daemon became unreachable, the tasks for which that was reported, and the end of the pause.
        self._outage: float | None = None
        self._outage_error: Exception | None = None
        self._told: set[TaskInstanceKey] = set()
        self._next_call_at = self._turn_ends_at = 0.0
        self._next_reasons_at = self._next_check_at = 0.0
        # Events that Airflow has not stored yet. Airflow drops its references before it stores them.
        self._unsaved: list[Any] = []

    def start(self) -> None:
        """Sends no request: the daemon may still be starting."""

    @cached_property
    def daemon(self) -> Daemon:
        """The daemon's client in the scheduler process."""
        return Daemon(max_seconds=CALL_SECONDS)

    def _position(self) -> int:
        """The position in the event feed, read before any task is queued so that no state is missed."""
        if self._cursor is None:
            self._cursor = int(self.daemon.events("last")["next"])
        return self._cursor

    def _process_workloads(self, workloads: Sequence[workloads.All]) -> None:
        self._begin_turn(TURN_SECONDS)
        for workload in workloads:
            started = time.monotonic()
            try:
                self._send(workload)
            except _InvalidError as error:
                self._reject(workload, f"the task cannot be queued: {error}")
            except (*UNREACHABLE, requests.exceptions.JSONDecodeError) as error:
                # The workload stays queued here and is sent again.
                self._unreachable(error, started)
            except requests.RequestException as error:
                if status_of(error) in BUSY_STATUS:
                    self._unreachable(error, started)
                else:
                    text = detail(error)
                    text = f": {text}" if text else ""
                    self._reject(workload, f"the daemon rejected the task ({error}){text}")
            except MALFORMED as error:
                self._unreachable(error, started)
        self._report_outage([it for it in workloads if it.ti.key in self.queued_tasks])

    def _send(self, workload: Any) -> None:
        """Sends a workload, unless it has to stay queued here."""
        key, ti = workload.ti.key, workload.ti
        task_id, external = job_id(ti), getattr(workload.ti, "external_executor_id", None)
        try:
            body = self.body(workload)
        except Exception as error:
            # What a task contains must not end the scheduler.
            raise _InvalidError(str(error)) from error
        if body["max_wait"] <= 0:
            # Its token expires too soon.
            if self._give_back(task_id, str(ti.id), external):
                self.queued_tasks.pop(key, None)
                self._blocked.discard(key)
            return
        if not self._may_call():
            return
        self._position()
        if task_id in self._kills:
            self._kill(task_id)
        self._uncertain.add(task_id)
        is_queued = self.daemon.queue(body)
        self._uncertain.discard(task_id)
        if not is_queued:
            self._block(key, f"{task_id} waits until an earlier run of the same try has ended")
            return
        self._answered()
        self.queued_tasks.pop(key, None)
        self._blocked.discard(key)
        self.running.add(key)
        own = task_id in self._first_queued and body["max_wait"] < pending_limit(_token(workload))
        info = external or task_id
        self._jobs[task_id] = _Job(key, info, str(ti.id), getattr(workload, "log_path", None), own)
        # The workload occupies a slot of the executor from now on, because the daemon has queued it.
        self.change_state(key, TaskInstanceState.QUEUED, info, remove_running=False)

    def _block(self, key: TaskInstanceKey, message: str) -> None:
        """Keeps a workload queued here."""
        if key not in self._blocked:
            self._blocked.add(key)
            self.log.warning("%s", message)

    def _reject(self, workload: Any, message: str) -> None:
        """Fails a task that cannot be queued."""
        key = workload.ti.key
        self.queued_tasks.pop(key, None)
        self._forget(key, job_id(workload.ti))
        self._note(key, getattr(workload, "log_path", None), "not queued", message, "error")
        self.fail(key, info=message)

    def _forget(self, key: TaskInstanceKey, task_id: str) -> None:
        """Drops what is known of a task that no longer waits."""
        self._jobs.pop(task_id, None)
        self._unconfirmed.pop(task_id, None)
        self._uncertain.discard(task_id)
        self._first_queued.pop(task_id, None)
        self._blocked.discard(key)
        self._told.discard(key)

    def _begin_turn(self, seconds: float) -> None:
        self._turn_ends_at = time.monotonic() + seconds

    def _may_call(self) -> bool:
        """Whether the daemon may be called now: there is no pause, and time is left in this turn."""
        now = time.monotonic()
        return self._next_call_at <= now < self._turn_ends_at

    def _unreachable(self, error: Exception, started: float) -> None:
        """Begins a pause after a failed call."""
        now = time.monotonic()
        if now - started >= SLOW_SECONDS:
            self._next_call_at = now + PAUSE_FACTOR * (now - started)
        self._turn_ends_at = now
        if self._outage is None:
            self._outage = now
            self.log.warning("Daemon %s unreachable; retrying: %s", self.daemon.url, error)
        self._outage_error = error

    def _answered(self) -> None:
        if self._outage is not None:
            self.log.info("Daemon %s is reachable again", self.daemon.url)
        self._outage = None
        self._told.clear()

    def _report_outage(self, waiting: list[Any]) -> None:
        """Reports an unreachable daemon once for each task that waits for it."""
        if self._outage is None or time.monotonic() - self._outage < OUTAGE_DELAY:
            return
        for workload in waiting:
            key = workload.ti.key
            if key not in self._told:
                self._told.add(key)
                error = self._outage_error
                text = detail(error) if isinstance(error, requests.RequestException) else ""
                self._note(
                    key,
                    getattr(workload, "log_path", None),
                    "pending",
                    f"the daemon {self.daemon.url} is unreachable; the task is sent as soon as it answers: "
                    f"{error}" + (f" ({text})" if text else ""),
                    "warning",
                )

    def body(self, workload: Any) -> dict[str, Any]:
        """Creates the job of a workload, with the workload as one argument and no secret of this process."""
        ti = workload.ti
        environment = {}
        for section, name in PASSED_SETTINGS:
            value = conf.get(section, name, fallback=None)
            if value:
                environment[f"AIRFLOW__{section.upper()}__{name.upper()}"] = value
        if url := execution_api_server_url():
            environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] = url
        config = check_config(ti.executor_config)
        environment.update(config.get("environment") or {})
        as_json = workload.model_dump_json()
        limits = [pending_limit(_token(workload))]
        if config.get("max_wait") is not None:
            # The limit of the task counts from the first time that it was queued.
            now = time.monotonic()
            waited = now - self._first_queued.setdefault(job_id(ti), now)
            limits.append(max(config["max_wait"] - waited, 0.001))
        return {
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

    def sync(self) -> None:
        """Reports changed states to Airflow."""
        self._unsaved = list(self._task_event_logs)
        self._begin_turn(TURN_SECONDS)
        self._check_wanted()
        started = time.monotonic()
        try:
            self._check_unconfirmed()
            while self._may_call():
                started = time.monotonic()
                page = self.daemon.events(self._position())
                for event in page["events"]:
                    self._on_state(event["task_id"], event["state"], event)
                self._cursor = page["next"]
                self._answered()
                if not page["events"]:
                    self._report_reasons()
                    break
            for task_id in list(self._kills):
                if self._may_call():
                    started = time.monotonic()
                    self._kill(task_id)
        except (requests.RequestException, *MALFORMED) as error:
            self._unreachable(error, started)
        self._return_pending()

    def _check_wanted(self) -> None:
        """Withdraws pending tasks that Airflow no longer wants: they were cleared, marked or deleted."""
        now = time.monotonic()
        pending: dict[str, tuple[str, Any, str | None]] = {
            job.ti_id: (task_id, job.key, job.info) for task_id, job in self._jobs.items() if not job.launched
        }
        for key, workload in self.queued_tasks.items():
            external = getattr(workload.ti, "external_executor_id", None)
            pending[str(workload.ti.id)] = (job_id(workload.ti), key, external)
        if not pending or now < self._next_check_at:
            return
        self._next_check_at = now + CHECK_INTERVAL
        try:
            found = task_states(pending)
        except Exception as error:
            self.log.warning("Reading the states of pending tasks failed; retrying: %s", error)
            return
        for ti_id, (task_id, key, info) in pending.items():
            state, external = found.get(ti_id, (None, None))
            if state == TaskInstanceState.RUNNING:
                continue
            # A task that was queued again has another external id, which Airflow assigned.
            is_same = None in (external, info) or task_id in (external, info) or external == info
            if state == TaskInstanceState.QUEUED and is_same:
                continue
            self.log.info("%s is withdrawn: its task is %s", task_id, state or "cleared or deleted")
            self._withdraw(key, task_id)

    def _withdraw(self, key: TaskInstanceKey, task_id: str) -> None:
        """Drops a task, and kills its job."""
        self._writes.pop(task_id, None)
        if task_id in self._jobs or task_id in self._uncertain:
            self._kills.add(task_id)
        queued = self.queued_tasks.get(key)
        # A new try may have the same key.
        if queued is not None and job_id(queued.ti) == task_id:
            del self.queued_tasks[key]
        self._forget(key, task_id)
        if not any(job.key == key for job in self._jobs.values()):
            self.running.discard(key)

    def _return_pending(self) -> None:
        """Returns the tasks to Airflow whose jobs were pending for too long."""
        for task_id, job in list(self._returning.items()):
            if self._give_back(task_id, job.ti_id, None if job.info == task_id else job.info):
                del self._returning[task_id]
                self.running.discard(job.key)

    def _give_back(self, task_id: str, ti_id: str, external: str | None) -> bool:
        """Returns a pending task to Airflow, which queues it again with a new token; tells whether it has."""
        write = self._writes.get(task_id)
        if write is None:
            write = self._writes[task_id] = WRITES.submit(to_scheduled, ti_id, external)
        if not write.done():
            return False
        del self._writes[task_id]
        if error := write.exception():
            self.log.warning("Returning %s to Airflow's queue failed; retrying: %s", task_id, error)
            return False
        self.log.info("%s waited until its token expired; Airflow queues it again", task_id)
        return True

    def _kill(self, task_id: str) -> None:
        """Kills a job that may not exist."""
        try:
            self.daemon.kill(task_id)
        except requests.HTTPError as error:
            if status_of(error) in BUSY_STATUS:
                raise
            if status_of(error) != requests.codes.not_found:
                self.log.warning("%s was withdrawn, but killing it failed: %s", task_id, error)
        self._kills.discard(task_id)

    def _on_state(self, task_id: str, state: str, event: dict[str, Any]) -> None:
        """Handles a state; `event` may contain its `message` and `reason`."""
        job = self._jobs.get(task_id)
        if job is None:
            return
        if state in LIVE:
            job.launched |= state != "TASK_STAGING"
            if state == "TASK_RUNNING":
                self.running_state(job.key, job.info)
            return
        if event.get("reason") == MAX_WAIT and not job.own_max_wait:
            del self._jobs[task_id]
            self._unconfirmed.pop(task_id, None)
            self._returning[task_id] = job
            if job.reason_message is None:
                self._note(job.key, job.log_path, "pending", str(event.get("message")), "warning")
            return
        self._forget(job.key, task_id)
        info = f"{state} {cause(event)}".strip()
        if state == FINISHED:
            self.success(job.key, info=info)
            return
        if job.launched:
            info += f". Output of its container: {self.daemon.log_url(task_id)}"
        elif job.reason_message and job.reason_message not in info:
            info += f". Pending reason: {job.reason_message}"
        self._note(job.key, job.log_path, "failed", info, "error")
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
            hopeless = [*why["unsatisfied_constraints"], *(why.get("unsatisfied_resources") or [])]
            reason = (why["code"], hopeless)
            if reason != job.reason and (hopeless or entry["waited"] >= REASON_DELAY):
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
        self._begin_turn(ADOPTION_SECONDS)
        for ti in tis:
            task_id = job_id(ti)
            external = getattr(ti, "external_executor_id", None)
            # Before Airflow 3.3 the external id is the job id that this executor reported.
            request_key = None if external == task_id else external
            self._jobs[task_id] = _Job(
                ti.key, external or task_id, str(ti.id), _log_path(ti), _has_own_max_wait(ti)
            )
            self.running.add(ti.key)
            # The task may be running, so it must not run again. It is looked up once the daemon answers.
            self._unconfirmed[task_id] = request_key
            if not self._may_call():
                continue
            started = time.monotonic()
            try:
                self._position()
                status = self.daemon.task(task_id)
            except (requests.RequestException, *MALFORMED) as error:
                self._unreachable(error, started)
                continue
            del self._unconfirmed[task_id]
            if _is_of(status, request_key):
                self._on_status(task_id, status)
            else:
                del self._jobs[task_id]
                self.running.discard(ti.key)
                not_adopted.append(ti)
        return not_adopted

    def _on_status(self, task_id: str, status: Any) -> None:
        """Handles the status from a look-up like an event."""
        self._on_state(task_id, status["status"].get("state", "TASK_STAGING"), status["status"])

    def _check_unconfirmed(self) -> None:
        for task_id, request_key in list(self._unconfirmed.items()):
            if not self._may_call():
                return
            self._position()
            status = self.daemon.task(task_id)
            if _is_of(status, request_key):
                self._on_status(task_id, status)
            elif not self._is_adopted(task_id):
                continue
            self._unconfirmed.pop(task_id, None)

    def _is_adopted(self, task_id: str) -> bool:
        """Handles an adopted task that the daemon does not know; tells whether it could."""
        job = self._jobs[task_id]
        try:
            state, _ = task_states([job.ti_id]).get(job.ti_id, (None, None))
        except Exception as error:
            self.log.warning("Reading the state of %s failed; retrying: %s", task_id, error)
            return False
        if state == TaskInstanceState.QUEUED:
            # The former scheduler ended before the daemon had queued it.
            self._returning[task_id] = self._jobs.pop(task_id)
        else:
            self._on_state(task_id, "TASK_LOST", {"message": "the daemon has no such task"})
        return True

    def revoke_task(self, *, ti: TaskInstance) -> None:
        """Kills a task that has been queued for too long, and drops it."""
        task_id, started = job_id(ti), time.monotonic()
        self._withdraw(ti.key, task_id)
        self._returning.pop(task_id, None)
        self._kills.add(task_id)
        if started < self._next_call_at:
            return
        try:
            self._kill(task_id)
        except requests.RequestException as error:
            # It is killed once the daemon answers.
            self._unreachable(error, started)

    def get_task_log(self, ti: TaskInstance, try_number: int) -> tuple[list[str], list[str]]:
        """The output of the container. The API server calls this from several threads."""
        task_id = job_id(ti)
        daemon = Daemon(max_seconds=LOG_SECONDS)
        try:
            text = daemon.log(task_id)
            if len(text) * MAX_BYTES_OF_CHARACTER >= MAX_CHUNK:
                text = self._long_log(daemon, task_id, text)
        except requests.RequestException as error:
            text = detail(error)
            return [f"Reading the log of {task_id} failed: {error}" + (f" ({text})" if text else "")], []
        return [f"Container of {task_id}: {daemon.log_url(task_id)}"], [text]

    @staticmethod
    def _long_log(daemon: Daemon, task_id: str, end: str) -> str:
        """All output of a container up to a maximum, and its end."""
        lines: list[str] = []
        output = Output(daemon, task_id, lines.append)
        output.copy(last=True)
        if max(output.read.values()) >= MAX_COPIED:
            lines += ["The end of the output:", end]
        return "\n".join(lines)

    def end(self) -> None:
        """Waits for running tasks, up to a timeout. The next scheduler adopts those that are left."""
        deadline = time.monotonic() + SHUTDOWN_TIMEOUT
        while self._jobs and time.monotonic() < deadline:
            self.sync()
            time.sleep(1.0)

    def terminate(self) -> None:
        """Leaves tasks running in the cluster; the next scheduler adopts them."""

    def debug_dump(self) -> None:
        """Logs the known tasks."""
        super().debug_dump()
        self.log.info("tasks in the cluster: %s", sorted(self._jobs))


def _token(workload: Any) -> str:
    return getattr(workload, "token", "")


def _log_path(ti: TaskInstance) -> str | None:
    """The task's log file, below the folder of logs; `None` if it cannot be found out."""
    try:
        from airflow.utils.helpers import log_filename_template_renderer  # noqa: PLC0415

        return str(log_filename_template_renderer()(ti=ti))
    except Exception:
        return None


def _has_own_max_wait(ti: TaskInstance) -> bool:
    try:
        return check_config(ti.executor_config).get("max_wait") is not None
    except Exception:
        return False


def _is_of(status: dict[str, Any] | None, request_key: str | None) -> bool:
    """Whether this run was queued with this key. True if one of the two keys is unknown."""
    if status is None:
        return False
    queued_with = status.get("request_key")
    return None in (request_key, queued_with) or request_key == queued_with
