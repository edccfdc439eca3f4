"""The executor in a simulated Airflow, in virtual time: hours of lost answers, full clusters and users.

Real is the executor. Simulated are Airflow's scheduler and its table of tasks, and the daemon with its queue
(its rules are those of `docs/workflow.md`). A seed determines everything. The mutations at the end show
that the checks find what they are for.
"""

from __future__ import annotations

import base64
import json
import random
import re
from concurrent.futures import Future
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
import requests
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from transom_airflow import executor as module
from transom_airflow.executor import ClusterExecutor

#: The daemon's reason for the end of a job that was pending for too long.
MAX_WAIT = "MaxWait"
#: The default of `[scheduler] task_queued_timeout`, which is also the lifetime of a token.
QUEUED_TIMEOUT = 600.0
#: Seconds that a task that nobody wants any more may stay in the daemon's queue while the daemon answers.
MAX_UNWANTED = 60.0
#: Maximum seconds of one turn of the scheduler's loop: each of its two parts, and a call that began at its end.
MAX_TURN = 2 * (module.TURN_SECONDS + module.CALL_SECONDS)
#: The last part of a simulation, in which nothing new happens.
CALM = 3600.0


class ViolationError(Exception):
    """An invariant does not hold."""


class Job:
    """A job of the daemon."""

    def __init__(self, body: dict, now: float) -> None:
        self.id, self.key, self.queued = body["airflow_task_id"], body["request_key"], now
        self.max_wait = body["max_wait"]
        self.expires = json.loads(body["command"][-1])["exp"]
        self.launched = self.starts = self.ends = None
        self.state, self.reason = "TASK_STAGING", None

    def is_active(self) -> bool:
        return self.state in module.LIVE


class Daemon:
    """The daemon as its client shows it. Calls take time and get lost during an outage."""

    url = "http://daemon"

    def __init__(self, world: World) -> None:
        self.world, self.jobs, self.active = world, {}, []
        # The last state of each job, with the number of its change, in the order of the changes.
        self.feed, self.changes = {}, 0
        self.had_to_wait = False
        self.slots, self.outage_until, self.last_outage = 3, 0.0, 0.0

    def _call(self, carry_out):
        world = self.world
        if world.now >= self.outage_until:
            world.now += world.rng.uniform(0.001, 0.02)
            return carry_out()
        self.last_outage = world.now
        world.now += world.rng.choice([0.001, 0.3, module.CALL_SECONDS])
        how = world.rng.randrange(4)
        if how == 0:
            answer = SimpleNamespace(status_code=503, text="", json=lambda: {"message": "no leader"})
            raise requests.HTTPError("503", response=answer)
        if how == 1:
            # It is carried out, and its answer gets lost.
            carry_out()
        elif how == 2:
            return carry_out()
        raise requests.exceptions.Timeout("no answer")

    def queue(self, body):
        def queue():
            job = self.jobs.get(body["airflow_task_id"])
            if job and job.key == body["request_key"]:
                return True
            if job and job.is_active():
                return False
            job = self.jobs[body["airflow_task_id"]] = Job(body, self.world.now)
            self.active.append(job)
            self.tell(job, "TASK_STAGING")
            return True

        return self._call(queue)

    def task(self, task_id):
        def task():
            job = self.jobs.get(task_id)
            status = job and {"state": job.state, "reason": job.reason}
            return job and {"status": status, "request_key": job.key}

        return self._call(task)

    def kill(self, task_id):
        def kill():
            job = self.jobs.get(task_id)
            if job and job.is_active():
                self.tell(job, "TASK_KILLED")

        return self._call(kill)

    def events(self, since, wait=0):
        def events():
            told = [event for event in self.feed.values() if since != "last" and event["number"] > since]
            return {"events": told, "next": self.changes}

        return self._call(events)

    def pending(self, limit):
        return self._call(list)

    def log_url(self, task_id):
        return f"{self.url}/v0/task/{task_id}/log"

    def tell(self, job, state, reason=None):
        job.state, job.reason = state, reason
        self.changes += 1
        event = {
            "task_id": job.id,
            "state": state,
            "message": "said",
            "reason": reason,
            "number": self.changes,
        }
        self.feed.pop(job.id, None)
        self.feed[job.id] = event
        self.had_to_wait |= reason == MAX_WAIT

    def step(self):
        """Launches pending jobs, and ends those whose time is over."""
        world, now = self.world, self.world.now
        for job in self.active:
            if not job.is_active():
                continue
            if job.launched is None and now - job.queued >= job.max_wait:
                self.tell(job, "TASK_FAILED", MAX_WAIT)
            elif job.launched is None and self._busy() < self.slots:
                job.launched, job.starts = now, now + world.rng.uniform(1, 60)
                job.ends = job.starts + min(world.rng.expovariate(1 / 120), 600)
                self.tell(job, "TASK_STARTING")
            elif job.state == "TASK_STARTING" and now >= job.starts:
                if job.expires < now:
                    raise ViolationError(f"{job.id} starts after its token has expired")
                self.tell(job, "TASK_RUNNING")
                world.started(job)
            elif job.state == "TASK_RUNNING" and now >= job.ends:
                is_ok = world.rng.random() < 0.9
                self.tell(job, "TASK_FINISHED" if is_ok else "TASK_FAILED")
                world.ended(job, is_ok)
        self.active = [job for job in self.active if job.is_active()]

    def _busy(self):
        return sum(job.is_active() and job.launched is not None for job in self.active)


class World:
    """Airflow's scheduler, its rows of tasks and its users."""

    def __init__(self, seed: int, patch: pytest.MonkeyPatch, hours: float = 2.0) -> None:
        self.rng, self.now, self.hours = random.Random(seed), 1e9, hours
        self.began, self.rows, self.writes, self.next_id = self.now, {}, [], 0
        self.unwanted: dict[str, float] = {}
        self.restarted = 0.0
        self.daemon = Daemon(self)
        clock = SimpleNamespace(time=lambda: self.now, monotonic=lambda: self.now)
        for name, value in {
            "time": clock,
            "task_states": self.task_states,
            "to_scheduled": self.to_scheduled,
            "WRITES": SimpleNamespace(submit=self.submit),
            "ClusterExecutor.log": MagicMock(),
        }.items():
            patch.setattr(f"transom_airflow.executor.{name}", value)
        self.executor = self.new_executor()

    def new_executor(self) -> ClusterExecutor:
        executor = ClusterExecutor()
        executor.__dict__["daemon"] = self.daemon
        executor.start()
        return executor

    # The table.

    def task_states(self, ids):
        found = ((ti_id, self.rows.get(ti_id)) for ti_id in ids)
        return {ti_id: (row.state, row.external_executor_id) for ti_id, row in found if row}

    def to_scheduled(self, ti_id, external):
        row = self.rows.get(ti_id)
        if row and row.state == "queued" and external in (None, row.external_executor_id):
            row.state = "scheduled"

    def submit(self, write, *arguments):
        future = Future()
        self.writes.append((future, write, arguments))
        return future

    def write(self):
        for future, write, arguments in self.writes:
            if self.rng.random() < 0.1:
                future.set_exception(OSError("the database is locked"))
            else:
                future.set_result(write(*arguments))
        self.writes = []

    def started(self, job):
        row = self.rows.get(job.id.removeprefix("airflow."))
        if row and row.state == "queued" and row.external_executor_id == job.key:
            row.state = "running"

    def ended(self, job, is_ok):
        row = self.rows.get(job.id.removeprefix("airflow."))
        if row and row.state == "running":
            row.state = "success" if is_ok else "failed"

    # The scheduler.

    def add(self, number: int, attempt: int) -> None:
        self.next_id += 1
        ti_id = f"{self.next_id:04}"
        self.rows[ti_id] = SimpleNamespace(
            id=ti_id,
            key=TaskInstanceKey("d", f"t{number}", "r", attempt, -1),
            dag_id="d",
            task_id=f"t{number}",
            run_id="r",
            try_number=attempt,
            map_index=-1,
            priority_weight=1,
            executor_config=None,
            external_executor_id=None,
            state="scheduled",
            queued=0.0,
        )

    def turn(self) -> None:
        self.write()
        for row in self.rows.values():
            if row.state == "scheduled" and len(self.executor.queued_tasks) + len(self.executor.running) < 32:
                row.external_executor_id = f"{self.rng.getrandbits(64):016x}"
                row.state, row.queued = "queued", self.now
                self.executor.queued_tasks[row.key] = self.workload(row)
            elif row.state == "queued" and self.now - row.queued > QUEUED_TIMEOUT + 120:
                self.executor.revoke_task(ti=SimpleNamespace(**vars(row)))
                row.state = "scheduled"
        started = self.now
        if self.executor.queued_tasks:
            self.executor._process_workloads(list(self.executor.queued_tasks.values()))
        self.executor.sync()
        if self.now - started > MAX_TURN:
            raise ViolationError(f"a turn of the scheduler takes {self.now - started:.1f} s")
        for key, (state, _) in self.executor.get_event_buffer().items():
            row = next((row for row in self.rows.values() if row.key == key), None)
            if state != TaskInstanceState.FAILED or row is None or row.state not in ("queued", "running"):
                continue
            job = self.daemon.jobs.get(module.job_id(row))
            if job is None or job.launched is None:
                raise ViolationError(f"{row.id} is {row.state} and fails, and its job was never launched")
            row.state = "failed"

    def workload(self, row):
        claims = {"iat": self.now, "exp": self.now + QUEUED_TIMEOUT}
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        # Airflow serializes a copy.
        return SimpleNamespace(
            ti=SimpleNamespace(**vars(row)),
            token=f"e30.{body}.signature",
            log_path=None,
            model_dump_json=lambda: json.dumps({"id": row.id, **claims}),
        )

    def restart(self) -> None:
        """Another scheduler adopts what the former one has queued."""
        self.write()
        self.restarted = self.now
        self.executor = self.new_executor()
        active = [row for row in self.rows.values() if row.state in ("queued", "running")]
        for row in self.executor.try_adopt_task_instances([SimpleNamespace(**vars(row)) for row in active]):
            self.rows[row.id].state = "scheduled"

    def disturb(self) -> None:
        """What users do, and what fails."""
        rng, number = self.rng, self.next_id
        waiting = [row for row in self.rows.values() if row.state in ("scheduled", "queued")]
        if rng.random() < 0.03:
            self.add(number, 1)
        if rng.random() < 0.002:
            self.daemon.outage_until = self.now + rng.uniform(1, 90)
        if rng.random() < 0.002:
            self.daemon.slots = rng.choice([0, 0, 1, 3, 10])
        if rng.random() < 0.001:
            if rng.random() < 0.5:
                self.daemon.outage_until = self.now + rng.uniform(1, 90)
            self.restart()
        if waiting and rng.random() < 0.005:
            row = rng.choice(waiting)
            how = rng.randrange(3)
            if how == 0:
                row.state = "failed"
            else:
                # Deleted; a cleared one has another id from then on.
                del self.rows[row.id]
                if how == 1:
                    self.add(number, row.try_number + 1)

    def check(self) -> None:
        """No job stays pending for long whose task is not waiting for it.

        Only a scheduler that ends within that time leaves one behind, which ends after its `max_wait`.
        """
        for job in self.daemon.active:
            row = self.rows.get(job.id.removeprefix("airflow."))
            is_wanted = row and row.state == "queued" and row.external_executor_id == job.key
            if job.launched is not None or not job.is_active() or is_wanted:
                self.unwanted.pop(job.id, None)
                continue
            began = self.unwanted.setdefault(job.id, self.now)
            is_left = self.now - began > MAX_UNWANTED and self.now - self.daemon.last_outage > MAX_UNWANTED
            if is_left and not began - MAX_UNWANTED < self.restarted:
                raise ViolationError(f"{job.id} waits in the queue, and nobody wants it")

    def run(self) -> World:
        end = self.began + self.hours * 3600
        while self.now < end + CALM:
            if self.now < end:
                self.disturb()
            else:
                self.daemon.slots, self.daemon.outage_until = 100, 0.0
            self.daemon.step()
            self.turn()
            self.daemon.step()
            self.check()
            self.now += 1.0
        left = [
            f"{row.id} is {row.state}" for row in self.rows.values() if row.state not in ("success", "failed")
        ]
        if left or self.executor.running or self.executor.queued_tasks or self.executor._kills:
            kept = {*self.executor.running, *self.executor.queued_tasks, *self.executor._kills}
            raise ViolationError(f"after an hour without faults: {left}, the executor has {kept}")
        return self


def test_no_task_is_lost_fails_for_waiting_or_waits_for_nobody(monkeypatch):
    seed = random.randrange(10**6)
    try:
        world = World(seed, monkeypatch).run()
    except ViolationError as error:
        pytest.fail(f"seed {seed}: {error}")
    states = [row.state for row in world.rows.values()]
    assert states.count("success") > 50
    # Tasks were queued again after their tokens had expired, so that these rules were applied.
    assert world.daemon.had_to_wait


def test_same_seed_gives_the_same_run(monkeypatch):
    first, second = (World(5, monkeypatch, hours=1.0).run().daemon for _ in range(2))
    assert list(first.feed.values()) == list(second.feed.values()) and first.changes > 100


@pytest.mark.parametrize(
    ("changed", "value", "expected"),
    [
        # A task whose token expires while it waits fails.
        ("MAX_WAIT", "another reason", "its job was never launched"),
        # Nobody looks whether a pending task is still wanted.
        ("ClusterExecutor._check_wanted", lambda _: None, "nobody wants it"),
        # The limit of a job leaves no time for the start of its container.
        ("START_SHARE", 0.0, "starts after its token has expired"),
        # A slow daemon is called without a pause, and without an end of the turn.
        ("ClusterExecutor._may_call", lambda _: True, "a turn of the scheduler takes"),
    ],
)
def test_mutations_are_found(changed, value, expected, monkeypatch):
    monkeypatch.setattr(f"transom_airflow.executor.{changed}", value)
    for seed in range(10):
        try:
            World(seed, monkeypatch).run()
        except ViolationError as error:
            assert re.search(expected, str(error)), f"seed {seed}: {error}"
            return
    pytest.fail("not found in ten runs")
