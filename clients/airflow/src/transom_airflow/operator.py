"""An operator that runs one container as a task of a DAG (Airflow 2.10 and later)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

import requests

from .daemon import BUSY_STATUS, UNREACHABLE, Daemon, detail, status_of
from .follow import Follow, Limits
from .output import Output

try:
    from airflow.sdk import BaseOperator, BaseOperatorLink
    from airflow.sdk.exceptions import AirflowException

    KEPT: Any = None
except ImportError:  # Airflow 2
    from airflow.exceptions import AirflowException
    from airflow.models import BaseOperator, XCom
    from airflow.models.baseoperatorlink import BaseOperatorLink

    KEPT = XCom

#: The XCom key under which Airflow 2 stores a try's link for its web server.
LINK = "cluster_log"
#: Seconds by which the daemon's timeouts for a job exceed those of this operator, so that they end the job
#: only if the operator no longer runs.
MARGIN = 30.0
#: Seconds for retries of a kill; Airflow ends a killed task after `[core] killed_task_cleanup_time` (60 s).
KILL_TIMEOUT = 15.0


class LogLink(BaseOperatorLink):  # type: ignore[misc]
    """Link to the output of the container."""

    name = "Container log"
    #: The XCom key under which Airflow 3 stores a try's link for its API server.
    xcom_key = "_link_LogLink"

    def get_link(self, operator: BaseOperator, *, ti_key: Any) -> str:
        """Returns the address of the log, or an empty text before the task is queued."""
        url = getattr(operator, "log_url", None)
        if url is None and KEPT is not None:
            url = KEPT.get_value(ti_key=ti_key, key=LINK)
        return url or ""


class ClusterOperator(BaseOperator):  # type: ignore[misc]
    """Runs one container on the cluster and waits for its end.

    :param image: the container's image
    :param command: one string for a shell, or a list of arguments that reach the container unchanged
    :param cpus: number of CPUs
    :param mem_limit: ``512m``, ``2g`` or a number of megabytes; alias ``memlimit``
    :param disk: megabytes
    :param environment: environment variables of the container
    :param attributes: constraints on agents, for example ``gpu:true``
    :param force_pull: pull the image even if the agent has it
    :param network_mode: ``host``, ``bridge``, ``none`` or a network's name
    :param user: user inside the container
    :param volumes: for example ``/data:/mnt/data:ro``
    :param scheduler_url: the daemon's address; alias ``airflow_scheduler_url``
    :param poll_interval: seconds between status requests
    :param startup_timeout: maximum seconds until the end; with ``running_timeout``, until the start
    :param waiting_timeout: maximum seconds until the start
    :param running_timeout: maximum seconds running
    :param deferrable: wait in the triggerer instead of in a worker
    :param container_logs: copy the container's output into the task's log
    """

    template_fields: Sequence[str] = (
        "command",
        "environment",
        "image",
        "attributes",
        "cpus",
        "mem_limit",
        "disk",
        "volumes",
        "user",
        "network_mode",
        "scheduler_url",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"command": "bash", "environment": "json"}
    operator_extra_links = (LogLink(),)
    ui_color = "#d7e8f5"

    def __init__(
        self,
        *,
        image: str,
        command: str | Sequence[Any] | None = None,
        cpus: float | str | None = None,
        mem_limit: str | float | None = None,
        memlimit: str | float | None = None,
        disk: float | str | None = None,
        environment: dict[str, str] | None = None,
        attributes: Sequence[str] | None = None,
        force_pull: bool = False,
        network_mode: str | None = None,
        user: str | None = None,
        volumes: Sequence[Any] | None = None,
        scheduler_url: str | None = None,
        airflow_scheduler_url: str | None = None,
        poll_interval: float = 2.0,
        startup_timeout: float | None = 300.0,
        waiting_timeout: float | None = None,
        running_timeout: float | None = None,
        deferrable: bool = False,
        container_logs: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.image = image
        self.command = command
        self.cpus = cpus
        self.mem_limit = mem_limit if mem_limit is not None else memlimit
        self.disk = disk
        self.environment = environment or {}
        self.attributes = list(attributes or [])
        self.force_pull = force_pull
        self.network_mode = network_mode
        self.user = user
        self.volumes = list(volumes or [])
        self.scheduler_url = scheduler_url or airflow_scheduler_url
        self.poll_interval = poll_interval
        self.startup_timeout = startup_timeout
        self.waiting_timeout = waiting_timeout
        self.running_timeout = running_timeout
        self.deferrable = deferrable
        self.container_logs = container_logs
        self.log_url: str | None = None
        self._cluster_task: str | None = None

    def execute(self, context: Any) -> Any:
        """Queues the job, follows it to its end, and returns its last status."""
        daemon = Daemon(self.scheduler_url)
        task_id = self.job_id(context)
        self.log_url = daemon.log_url(task_id)
        self._show_link(context)
        begun = time.time()
        self._queue(daemon, self.body(task_id, self.priority(context)), begun)
        self.log.info("Queued %s; its output: %s", task_id, self.log_url)
        if self.deferrable:
            from .trigger import ClusterTrigger  # noqa: PLC0415

            trigger = ClusterTrigger(
                task_id=task_id,
                limits=self.limits(begun),
                url=daemon.url,
                poll_interval=self.poll_interval,
                container_logs=self.container_logs,
            )
            self.defer(trigger=trigger, method_name="execute_complete")
        output = Output(daemon, task_id, self.log.info) if self.container_logs else None
        follow = Follow(daemon, task_id, self.limits(begun), self.log, output)
        try:
            while (outcome := follow.poll()) is None:
                time.sleep(self.poll_interval)
        except Exception:
            self.on_kill()
            raise
        return self.concluded(outcome)

    def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
        """Called after the trigger fired. Copies the output that the triggerer has not copied."""
        self._cluster_task = event["task_id"]
        daemon = Daemon(self.scheduler_url)
        self.log_url = daemon.log_url(event["task_id"])
        if self.container_logs:
            Output(daemon, event["task_id"], self.log.info, event.get("read")).copy(last=True)
        return self.concluded(event)

    def _show_link(self, context: Any) -> None:
        """Stores the link immediately, because Airflow 3 stores it only when the task ends."""
        push = getattr((context or {}).get("ti"), "xcom_push", None)
        if push is not None:
            push(key=LINK if KEPT is not None else LogLink.xcom_key, value=self.log_url)

    def on_kill(self) -> None:
        """Kills the container. A failure is only logged."""
        if self._cluster_task is not None:
            daemon = Daemon(self.scheduler_url)
            daemon.kill_within(self._cluster_task, KILL_TIMEOUT, self.poll_interval, self.log)

    def job_id(self, context: Any) -> str:
        """A unique id of this try, so that no try reads the state of another one."""
        base = f"airflow.{self.dag_id}.{self.task_id}"
        ti = (context or {}).get("ti")
        if ti is None:
            return base
        own = getattr(ti, "id", None) or f"{ti.run_id}.{ti.try_number}.{ti.map_index}"
        return f"{base}.{own}"

    def priority(self, context: Any) -> int | None:
        """The priority weight of this try, or of the task if a try has none (Airflow 3)."""
        ti = (context or {}).get("ti")
        if ti is None:
            return None
        weight = getattr(ti, "priority_weight", None)
        return int(self.priority_weight if weight is None else weight)

    def body(self, task_id: str, priority: int | None = None) -> dict[str, Any]:
        """The job to queue."""
        command = self.command
        if command is None:
            arguments = []
        elif isinstance(command, str):
            arguments = ["/bin/sh", "-c", command]
        else:
            arguments = [str(argument) for argument in command]
        body: dict[str, Any] = {
            "airflow_task_id": task_id,
            "unique": True,
            # The same in every attempt to send this body, and different for each body.
            "request_key": uuid.uuid4().hex,
            "container_type": "DOCKER",
            "command": arguments,
            "image": self.image,
            "force_pull": self.force_pull,
            "environment": self.environment,
            "attributes": self.attributes,
            "volumes": self.volumes,
        }
        for key in ("cpus", "mem_limit", "disk", "network_mode", "user"):
            value = getattr(self, key)
            if value is not None:
                body[key] = value
        if priority is not None:
            body["priority"] = priority
        body.update(self.daemon_limits())
        return body

    def daemon_limits(self) -> dict[str, float]:
        """Timeouts that the daemon enforces without this operator."""
        whole = self.execution_timeout.total_seconds() if self.execution_timeout else None
        running = self.startup_timeout if self.running_timeout is None else self.running_timeout
        found = {}
        for key, limits in (
            ("max_wait", (self.startup_timeout, self.waiting_timeout, whole)),
            ("max_runtime", (running, whole)),
        ):
            given = [limit for limit in limits if limit is not None]
            if given:
                found[key] = max(min(given), 0.0) + MARGIN
        return found

    def limits(self, begun: float) -> Limits:
        """The timeouts of this operator."""
        return Limits(begun, self.startup_timeout, self.waiting_timeout, self.running_timeout)

    def _queue(self, daemon: Daemon, body: dict[str, Any], begun: float) -> None:
        task_id, limits, warned = body["airflow_task_id"], self.limits(begun), False
        while True:
            # Set before the request, so that `on_kill` kills a job that was queued without a response.
            self._cluster_task = task_id
            try:
                if daemon.queue(body):
                    return
                self._cluster_task = None
                obstacle = (
                    f"a job of another request with this id is active: see {daemon.url}/v0/task/{task_id}"
                )
            except (requests.RequestException, ValueError) as error:
                status, text = None, ""
                if isinstance(error, requests.RequestException):
                    status, text = status_of(error), detail(error)
                text = f" ({text})" if text else ""
                if not isinstance(error, UNREACHABLE) and status not in BUSY_STATUS:
                    if status is None or status >= requests.codes.server_error:
                        self.on_kill()  # The job may be queued nevertheless.
                    raise AirflowException(f"Unable to queue Mesos task {task_id}: {error}{text}") from error
                obstacle = f"daemon {daemon.url} unreachable: {error}{text}"
            if limits.passed(None):
                self.on_kill()
                raise AirflowException(f"Timed out waiting for Mesos task {task_id} ({obstacle})")
            if not warned:
                warned = True
                self.log.warning("%s not queued; retrying: %s", task_id, obstacle)
            time.sleep(self.poll_interval)

    def concluded(self, outcome: dict[str, Any]) -> Any:
        """Returns the last status of a finished task, and raises for every other outcome."""
        if outcome.get("kill"):
            self.on_kill()
        if outcome["error"] is not None:
            raise AirflowException(outcome["error"])
        return outcome["status"]
