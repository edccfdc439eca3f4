"""The executor: the requests that it sends, and the states that it reports to Airflow."""

from __future__ import annotations

import base64
import gc
import json
import os
import subprocess
import sys
import time
import weakref
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from transom_airflow.executor import ClusterExecutor


def token(**claims) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.signature"


class Workload:
    token = ""
    log_path = "dag_id=d/attempt=1.log"

    def __init__(self, number: int, **more) -> None:
        self.ti = SimpleNamespace(
            id=f"00{number}",
            key=TaskInstanceKey("d", "t", "r", number, -1),
            dag_id="d",
            task_id="t",
            run_id="r",
            try_number=1,
            map_index=-1,
            priority_weight=7,
            **{"executor_config": None, **more},
        )

    def model_dump_json(self) -> str:
        return json.dumps({"token": "x", "it's": '"quoted" $HOME'})


@pytest.fixture
def executor(daemon, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL", "http://api/execution/")
    monkeypatch.setenv("AIRFLOW__API_AUTH__JWT_SECRET", "secret")
    executor = ClusterExecutor()
    executor.start()
    return executor


def hand_over(executor, *loads):
    for workload in loads:
        executor.queued_tasks[workload.ti.key] = workload
    executor._process_workloads(list(loads))


def told(daemon, *events):
    for task_id, state in events:
        number = len(daemon.events) + 1
        daemon.events.append({"task_id": task_id, "state": state, "message": "said", "number": number})


def test_workload_is_queued_completely_and_without_secrets(executor, daemon):
    config = {"cpus": 2, "mem_limit": "1g", "attributes": ["a:b"], "environment": {"MINE": "1"}}
    workload = Workload(1, executor_config=config)
    hand_over(executor, workload)
    [asked] = daemon.asked("POST")
    body = asked["json"]
    assert body["airflow_task_id"] == "airflow.001"
    assert body["command"] == [
        "python",
        "-m",
        "airflow.sdk.execution_time.execute_workload",
        "--json-string",
        workload.model_dump_json(),
    ]
    assert body["airflow_key"] == {
        "dag_id": "d",
        "task_id": "t",
        "run_id": "r",
        "try_number": 1,
        "map_index": -1,
    }
    assert body["executor_config"] == config
    assert body["priority"] == 7
    assert body["environment"]["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://api/execution/"
    assert body["environment"]["MINE"] == "1"
    assert "secret" not in json.dumps(body)
    assert not any("JWT" in name or "SQL" in name or "FERNET" in name for name in body["environment"])
    assert body["unique"] is True and body["request_key"]
    # The workload occupies a slot from now on.
    assert executor.running == {workload.ti.key} and not executor.queued_tasks
    assert executor.get_event_buffer() == {workload.ti.key: (TaskInstanceState.QUEUED, "airflow.001")}


def test_states_are_reported_to_airflow(executor, daemon):
    loads = [Workload(number) for number in (1, 2, 3)]
    hand_over(executor, *loads)
    told(daemon, ("airflow.001", "TASK_RUNNING"), ("airflow.nobody", "TASK_FAILED"))
    executor.sync()
    assert executor.event_buffer[loads[0].ti.key][0] == TaskInstanceState.RUNNING
    assert len(executor.running) == 3
    told(daemon, ("airflow.001", "TASK_FINISHED"), ("airflow.002", "TASK_LOST"))
    executor.sync()
    assert executor.event_buffer[loads[0].ti.key] == (TaskInstanceState.SUCCESS, "TASK_FINISHED said")
    assert executor.event_buffer[loads[1].ti.key] == (TaskInstanceState.FAILED, "TASK_LOST said")
    told(daemon, ("airflow.003", "TASK_RUNNING"), ("airflow.003", "TASK_FAILED"))
    executor.sync()
    log = f"{daemon.url}/v0/task/airflow.003/log"
    said = f"TASK_FAILED said. Output of its container: {log}"
    assert executor.event_buffer[loads[2].ti.key] == (TaskInstanceState.FAILED, said)
    assert not executor.running
    # No state is reported twice.
    executor.get_event_buffer()
    executor.sync()
    assert executor.get_event_buffer() == {}


def test_rejected_workload_fails_and_unsent_one_stays_queued(executor, daemon):
    daemon.answers["POST"] = [(422, "bad cpus"), (200, "Ok")]
    bad, good = Workload(1), Workload(2)
    hand_over(executor, bad, good)
    state, info = executor.event_buffer[bad.ti.key]
    assert state == TaskInstanceState.FAILED and "bad cpus" in info
    assert executor.running == {good.ti.key}
    executor.daemon.url = "http://127.0.0.1:1"
    late = Workload(3)
    hand_over(executor, late)
    assert late.ti.key in executor.queued_tasks and late.ti.key not in executor.running
    executor.sync()


def test_workload_is_sent_again_with_the_same_key_after_a_lost_response(executor, daemon):
    daemon.lost = ["POST"]
    workload = Workload(1)
    hand_over(executor, workload)
    assert workload.ti.key in executor.queued_tasks and not executor.running
    # The daemon has queued the job meanwhile.
    daemon.answers["POST"] = [(409, {"message": "it is active"})]
    executor._process_workloads([workload])
    assert executor.running == {workload.ti.key} and not executor.queued_tasks
    first, second = daemon.asked("POST")
    assert first["json"] == second["json"]
    told(daemon, ("airflow.001", "TASK_RUNNING"))
    executor.sync()
    assert executor.event_buffer[workload.ti.key][0] == TaskInstanceState.RUNNING


def test_earlier_run_of_the_same_try_is_not_mistaken_for_this_one(executor, daemon):
    # Airflow assigns a new id whenever it queues the workload. The first run was deferred and is ending.
    first, second = (Workload(1, external_executor_id=name) for name in ("one", "two"))
    hand_over(executor, first)
    assert executor.get_event_buffer() == {first.ti.key: (TaskInstanceState.QUEUED, "one")}
    daemon.answers["POST"] = [(409, {"message": "it is active"}), (200, "Ok")]
    daemon.answers["GET"] = [(200, {"status": {"state": "TASK_RUNNING"}, "request_key": "one"})]
    hand_over(executor, second)
    assert second.ti.key in executor.queued_tasks and not executor.event_buffer
    executor._process_workloads([second])
    assert not executor.queued_tasks
    assert executor.get_event_buffer() == {second.ti.key: (TaskInstanceState.QUEUED, "two")}
    assert [asked["json"]["request_key"] for asked in daemon.asked("POST")] == ["one", "two", "two"]


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_workload_is_sent_again_when_the_daemon_is_busy(status, executor, daemon):
    daemon.answers["POST"] = [(status, {"message": "later"}), (200, "Ok")]
    workload = Workload(1)
    hand_over(executor, workload)
    assert workload.ti.key in executor.queued_tasks and not executor.event_buffer
    executor._process_workloads([workload])
    assert executor.running == {workload.ti.key}


def test_max_wait_ends_before_the_token_expires(executor, daemon):
    now = time.time()
    for number, (life, most) in enumerate([(600.0, 480.0), (6000.0, 5880.0), (50.0, 40.0)]):
        workload = Workload(number)
        workload.token = token(iat=now, exp=now + life)
        hand_over(executor, workload)
        limit = daemon.asked("POST")[-1]["json"]["max_wait"]
        assert most - 30 < limit <= most
    # An older token, and a task with a shorter `max_wait`.
    old, brief = Workload(8), Workload(9, executor_config={"max_wait": 7})
    old.token = token(iat=now - 400.0, exp=now + 200.0)
    hand_over(executor, old, brief)
    [late, short] = [asked["json"]["max_wait"] for asked in daemon.asked("POST")[-2:]]
    assert 50 < late <= 80.0 and short == 7
    # Too little time is left to start the container before the token expires.
    asked = len(daemon.asked("POST"))
    dead = Workload(10)
    dead.token = token(iat=now - 550.0, exp=now + 50.0)
    hand_over(executor, dead)
    # Without Airflow's database it stays queued here.
    assert len(daemon.asked("POST")) == asked and dead.ti.key in executor.queued_tasks


def test_unknown_keys_of_executor_config_are_reported_with_the_nearest(executor, daemon):
    bad = Workload(1, executor_config={"cpu": 2, "memory_limit": "1g", "attributes": []})
    odd = Workload(2, executor_config={"environment": ["A=b"]})
    unsendable = Workload(3, executor_config={"labels": {"a": object()}})
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    others = {
        4: ({"max_wait": "soon"}, "executor_config['max_wait'] is 'soon'; expected a number of seconds"),
        5: ({"cpus": float("nan")}, "executor_config['cpus'] cannot be sent as JSON"),
        6: ({"volumes": deep}, "executor_config['volumes'] cannot be sent as JSON"),
        7: ({"max_wait": 10**400}, "executor_config['max_wait'] is "),
        8: (
            {"KubernetesExecutor": {}},
            "no key 'KubernetesExecutor'; expected one of architecture, attributes",
        ),
        9: (
            {"environment": {"A": 1}},
            "executor_config['environment'] is \"{'A': 1}\"; expected a dict of strings",
        ),
        10: ("pod", "executor_config is a str; expected a dict"),
    }
    strange = [Workload(number, executor_config=config) for number, (config, _) in others.items()]
    hand_over(executor, bad, odd, unsendable, *strange)
    for workload, (_, said) in zip(strange, others.values(), strict=True):
        assert said in executor.event_buffer[workload.ti.key][1]
    assert not daemon.asked("POST") and not executor.running and not executor.queued_tasks
    state, info = executor.event_buffer[bad.ti.key]
    assert state == TaskInstanceState.FAILED
    assert "no key 'cpu'; did you mean 'cpus'" in info
    assert "no key 'memory_limit'; did you mean 'mem_limit'" in info
    assert "'environment'" in executor.event_buffer[odd.ti.key][1]
    assert "JSON" in executor.event_buffer[unsendable.ti.key][1]
    [event, *_] = executor._task_event_logs
    assert event.event == "not queued" and "'cpus'" in event.extra


@pytest.mark.parametrize("how", ["silent", "slow"])
def test_daemon_that_does_not_answer_takes_little_of_the_schedulers_time(how, executor, daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.executor.SLOW_SECONDS", 0.1)
    monkeypatch.setattr("transom_airflow.executor.PAUSE_FACTOR", 1000.0)
    executor.daemon.max_seconds = 0.2
    daemon.by_path = {"/v0/events": (how, "{")}
    waits, queued, adopted = Workload(1), Workload(2), Workload(3)
    hand_over(executor, waits)
    # All further calls of the scheduler return without a request.
    for _ in range(3):
        hand_over(executor, queued)
        executor.sync()
        executor.revoke_task(ti=Workload(4).ti)
        assert executor.try_adopt_task_instances([adopted.ti]) == []
    assert len(daemon.requests) == 1
    assert set(executor.queued_tasks) == {waits.ti.key, queued.ti.key} and not executor.event_buffer
    # After the pause everything is made up for.
    daemon.by_path = {}
    executor._next_call_at = 0.0
    executor.daemon.max_seconds = 30.0
    daemon.states("TASK_RUNNING")
    executor._process_workloads([waits, queued])
    executor.sync()
    assert executor.running == {waits.ti.key, queued.ti.key, adopted.ti.key} and not executor.queued_tasks
    assert {it["path"] for it in daemon.asked("DELETE")} == {"/v0/task/airflow.004"}


def test_calls_of_one_turn_are_limited(executor, daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.executor.TURN_SECONDS", 0.0)
    hand_over(executor, Workload(1))
    executor.sync()
    assert not daemon.requests and executor.queued_tasks


@pytest.mark.parametrize(
    "answer",
    [(200, "<html>"), (200, "[1]"), (200, "null"), (200, {"events": 1, "next": 1}), (500, "x"), ("cut", "{")],
)
def test_malformed_answers_do_not_end_the_scheduler(answer, executor, daemon):
    good = Workload(1)
    hand_over(executor, good)
    daemon.states("TASK_RUNNING")
    daemon.by_path = {"/v0/events": answer}
    executor.sync()
    executor._cursor = None
    late = Workload(2)
    hand_over(executor, late)
    adopted = Workload(3).ti
    assert executor.try_adopt_task_instances([adopted]) == []
    daemon.by_path = {"/v0/events": (200, {"events": [{"task_id": "airflow.001"}], "next": 5})}
    executor.sync()
    assert {good.ti.key, adopted.key} <= executor.running
    assert executor.event_buffer[good.ti.key][0] == TaskInstanceState.QUEUED


def test_unreachable_daemon_is_reported_once_for_each_waiting_task(executor, daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.executor.OUTAGE_DELAY", 0.0)
    daemon.answers["POST"] = [(503, {"message": "no leader"})]
    first, second = Workload(1), Workload(2)
    for _ in range(3):
        hand_over(executor, first, second)
    events = [(log.event, log.extra) for log in executor._task_event_logs]
    assert len(events) == 2 and all(event == "pending" for event, _ in events)
    assert f"the daemon {daemon.url} is unreachable" in events[0][1] and "no leader" in events[0][1]
    daemon.answers["POST"] = [(200, "Ok")]
    hand_over(executor, first, second)
    assert executor.running == {first.ti.key, second.ti.key} and len(executor._task_event_logs) == 2


class Rows:
    """The rows of queued tasks in Airflow's database."""

    def __init__(self, monkeypatch) -> None:
        self.states, self.scheduled, self.broken = {}, [], False
        monkeypatch.setattr("transom_airflow.executor.task_states", self.read)
        monkeypatch.setattr("transom_airflow.executor.to_scheduled", self.to_scheduled)
        monkeypatch.setattr("transom_airflow.executor.WRITES", self)
        monkeypatch.setattr("transom_airflow.executor.CHECK_INTERVAL", 0.0)

    def read(self, ids):
        if self.broken:
            raise OSError("the database is locked")
        return {ti_id: self.states[ti_id] for ti_id in ids if ti_id in self.states}

    def submit(self, write, *arguments):
        """Writes immediately, in place of a thread."""
        future = Future()
        try:
            future.set_result(write(*arguments))
        except OSError as error:
            future.set_exception(error)
        return future

    def to_scheduled(self, ti_id, external):
        if self.broken:
            raise OSError("the database is locked")
        self.scheduled.append((ti_id, external))


@pytest.mark.parametrize(
    ("row", "is_wanted"),
    [
        (("queued", "one"), True),
        (("queued", None), True),
        (("running", "one"), True),
        # Queued again, by this or by another scheduler.
        (("queued", "two"), False),
        (("failed", "one"), False),
        (("success", "one"), False),
        (("scheduled", "one"), False),
        ((None, "one"), False),
        # Deleted, or cleared: the next try has another id.
        (None, False),
    ],
)
def test_pending_job_leaves_the_queue_when_its_task_is_no_longer_wanted(
    row, is_wanted, executor, daemon, monkeypatch
):
    rows = Rows(monkeypatch)
    rows.states = {"001": row, "002": ("failed", None)} if row else {}
    sent, unsent = Workload(1, external_executor_id="one"), Workload(2)
    hand_over(executor, sent)
    executor.queued_tasks[unsent.ti.key] = unsent
    executor.get_event_buffer()
    # The first request is lost.
    daemon.lost = ["DELETE"]
    rows.broken = True
    executor.sync()
    assert sent.ti.key in executor.running and unsent.ti.key in executor.queued_tasks
    rows.broken = False
    for _ in range(3):
        executor.sync()
    kills = [asked["path"] for asked in daemon.asked("DELETE")]
    assert kills == ([] if is_wanted else ["/v0/task/airflow.001"] * 2)
    assert executor.running == ({sent.ti.key} if is_wanted else set()) and not executor.queued_tasks
    told(daemon, ("airflow.001", "TASK_KILLED" if not is_wanted else "TASK_RUNNING"))
    executor.sync()
    # No event: the key may already be that of the next try.
    assert bool(executor.event_buffer) == is_wanted


def test_job_of_a_launched_task_is_not_withdrawn(executor, daemon, monkeypatch):
    Rows(monkeypatch)
    workload = Workload(1)
    hand_over(executor, workload)
    told(daemon, ("airflow.001", "TASK_STARTING"))
    monkeypatch.setattr(executor, "_check_wanted", lambda: None)
    executor.sync()
    monkeypatch.undo()
    Rows(monkeypatch)
    executor.sync()
    assert not daemon.asked("DELETE") and executor.running == {workload.ti.key}


def ended(daemon, task_id, reason, message):
    number = len(daemon.events) + 1
    daemon.events.append(
        {"task_id": task_id, "state": "TASK_FAILED", "message": message, "reason": reason, "number": number}
    )


def test_pending_task_returns_to_airflows_queue_before_its_token_expires(executor, daemon, monkeypatch):
    rows = Rows(monkeypatch)
    rows.states = {"001": ("queued", "one")}
    workload = Workload(1, external_executor_id="one")
    hand_over(executor, workload)
    executor.get_event_buffer()
    rows.broken = True
    ended(
        daemon,
        "airflow.001",
        "MaxWait",
        "not launched within 480 s (max_wait): 3 of 3 offers have too few CPUs",
    )
    executor.sync()
    assert not rows.scheduled and not executor.event_buffer
    rows.broken = False
    executor.sync()
    assert rows.scheduled == [("001", "one")] and not executor.event_buffer and not executor.running
    [event] = executor._task_event_logs
    assert event.event == "pending" and "too few CPUs" in event.extra
    # The token has expired before the task was sent.
    late = Workload(2, external_executor_id="two")
    late.token = token(iat=time.time() - 550.0, exp=time.time() + 50.0)
    hand_over(executor, late)
    assert rows.scheduled[1:] == [("002", "two")] and not executor.queued_tasks and not executor.event_buffer


def test_tasks_own_max_wait_counts_from_the_first_time_and_fails_it(executor, daemon, monkeypatch):
    rows = Rows(monkeypatch)
    rows.states = {"001": ("queued", "one"), "002": ("queued", "one")}
    patient, brief = (
        Workload(number, external_executor_id="one", executor_config={"max_wait": limit})
        for number, limit in ((1, 3600), (2, 60))
    )
    hand_over(executor, patient, brief)
    for task_id in ("airflow.001", "airflow.002"):
        ended(daemon, task_id, "MaxWait", "not launched")
    executor.sync()
    assert rows.scheduled == [("001", "one")]
    state, info = executor.event_buffer[brief.ti.key]
    assert state == TaskInstanceState.FAILED and info == "TASK_FAILED not launched (MaxWait)"
    executor._first_queued["airflow.001"] -= 3500
    hand_over(executor, patient)
    assert daemon.asked("POST")[-1]["json"]["max_wait"] < 101
    ended(daemon, "airflow.001", "MaxWait", "not launched")
    executor.sync()
    assert executor.event_buffer[patient.ti.key][0] == TaskInstanceState.FAILED


def test_container_knows_the_executors_and_the_api_server(executor, daemon, monkeypatch):
    several = "LocalExecutor,cluster:transom_airflow.executor.ClusterExecutor"
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", several)
    monkeypatch.delenv("AIRFLOW__CORE__EXECUTION_API_SERVER_URL")
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://airflow.internal:8080/af/")
    hand_over(executor, Workload(1))
    environment = daemon.asked("POST")[0]["json"]["environment"]
    assert environment["AIRFLOW__CORE__EXECUTOR"] == several
    url = "http://airflow.internal:8080/af/execution/"
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == url


def test_failure_is_in_the_tasks_events_and_log(executor, daemon, monkeypatch, tmp_path):
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
    hand_over(executor, Workload(1))
    told(daemon, ("airflow.001", "TASK_RUNNING"))
    executor.sync()
    ended(daemon, "airflow.001", "REASON_CONTAINER_LIMITATION_MEMORY", "Memory limit exceeded")
    executor.sync()
    [event] = executor._task_event_logs
    said = "TASK_FAILED Memory limit exceeded (REASON_CONTAINER_LIMITATION_MEMORY). Output of its container:"
    assert event.event == "failed" and event.extra.startswith(said)
    [line] = (tmp_path / f"{Workload.log_path}.cluster.log").read_text().splitlines()
    assert json.loads(line)["event"].startswith(f"failed: {said}")


def test_long_output_is_read_on(daemon):
    daemon.written = {"stdout": b"0123456789\n" * 300_000, "stderr": b"oops\n"}
    daemon.answers["GET"] = [(200, "the end\n" * 200_000)]
    messages, [text] = ClusterExecutor().get_task_log(Workload(1).ti, 1)
    lines = text.split("\n")
    assert lines.count("0123456789") == 300_000 and lines[-1] == "[stderr] oops" and len(messages) == 1
    daemon.written["stdout"] *= 4
    _, [text] = ClusterExecutor().get_task_log(Workload(1).ti, 1)
    assert "Only the first 8 MiB of stdout" in text and text.endswith("the end\n")


def test_pending_reason_is_in_the_tasks_events_and_log_once(executor, daemon, monkeypatch, tmp_path):
    monkeypatch.setattr("transom_airflow.executor.REASON_INTERVAL", 0.0)
    monkeypatch.setenv("AIRFLOW__LOGGING__BASE_LOG_FOLDER", str(tmp_path))
    hand_over(executor, Workload(1), Workload(2))
    unsatisfied = {
        "code": "UnfulfilledConstraint",
        "message": "no active agent satisfies `gpu:true`",
        "unsatisfied_constraints": ["gpu:true"],
    }
    # A lack of resources is reported only after the task has been pending for some time.
    short = {
        "code": "InsufficientCpus",
        "message": "3 of 3 offers have too few CPUs",
        "unsatisfied_constraints": [],
    }
    impossible = {**short, "message": "the job asks for 64 CPUs", "unsatisfied_resources": ["cpus"]}
    daemon.reasons = {
        "airflow.001": unsatisfied,
        "airflow.002": {**short, "waited": 59.0},
        "airflow.9": unsatisfied,
    }
    executor.sync()
    executor.sync()
    events = [(log.event, log.extra) for log in executor._task_event_logs]
    assert events == [("pending", unsatisfied["message"])]
    daemon.reasons = {"airflow.001": unsatisfied, "airflow.002": {**short, "waited": 61.0}}
    executor.sync()
    assert [log.extra for log in executor._task_event_logs] == [unsatisfied["message"], short["message"]]
    lines = [json.loads(line) for line in (tmp_path / f"{Workload.log_path}.cluster.log").open()]
    assert [line["event"] for line in lines] == [f"pending: {why['message']}" for why in (unsatisfied, short)]
    # The failure of a pending task contains its pending reason.
    told(daemon, ("airflow.001", "TASK_FAILED"))
    executor.sync()
    [info] = [info for state, info in executor.event_buffer.values() if state == TaskInstanceState.FAILED]
    assert info == "TASK_FAILED said. Pending reason: no active agent satisfies `gpu:true`"
    assert executor._task_event_logs[-1].event == "failed" and executor._task_event_logs[-1].extra == info
    # Amounts that no agent has are reported immediately.
    daemon.reasons = {"airflow.002": impossible}
    executor.sync()
    assert executor._task_event_logs[-1].extra == "the job asks for 64 CPUs"


def test_events_are_kept_until_airflow_has_stored_them(executor, daemon):
    # Airflow 3.3 removes the events one by one, and reads them when it has removed all.
    hand_over(executor, Workload(1, executor_config={"cpu": 2}))
    events = [weakref.ref(log) for log in executor._task_event_logs]
    executor.sync()
    executor._task_event_logs.clear()
    gc.collect()
    assert len(events) == 1 and all(event() is not None for event in events)
    executor.sync()
    gc.collect()
    assert all(event() is None for event in events)


def test_tasks_are_adopted_by_the_id_of_their_try(executor, daemon):
    daemon.states("TASK_RUNNING", None, "TASK_FINISHED")
    runs, stranger, ended = (Workload(number).ti for number in (1, 2, 3))
    assert executor.try_adopt_task_instances([runs, stranger, ended]) == [stranger]
    assert executor.running == {runs.key}
    # An end that happened before the adoption is reported.
    assert executor.event_buffer[ended.key][0] == TaskInstanceState.SUCCESS
    told(daemon, ("airflow.001", "TASK_FINISHED"))
    executor.sync()
    assert executor.event_buffer[runs.key][0] == TaskInstanceState.SUCCESS


def test_run_with_another_request_key_is_not_adopted(executor, daemon):
    def answer(name):
        status = {"status": {"state": "TASK_FINISHED"}, "request_key": name}
        return 200, status

    # The old scheduler stored a new id for the task, and was killed before it queued the task with it.
    deferred, same = (Workload(number, external_executor_id="two").ti for number in (1, 2))
    daemon.answers["GET"] = [answer("one"), answer("two")]
    assert executor.try_adopt_task_instances([deferred, same]) == [deferred]
    assert executor.event_buffer == {same.key: (TaskInstanceState.SUCCESS, "TASK_FINISHED")}


def test_task_is_not_run_twice_when_the_daemon_is_unreachable(executor, daemon, monkeypatch):
    rows = Rows(monkeypatch)
    url, executor.daemon.url = executor.daemon.url, "http://127.0.0.1:1"
    running, queued = (Workload(number, external_executor_id="one").ti for number in (1, 2))
    rows.states = {"001": ("running", "one"), "002": ("queued", "one")}
    assert executor.try_adopt_task_instances([running, queued]) == []
    executor.sync()
    assert executor.running == {running.key, queued.key}
    executor.daemon.url = url
    daemon.states(None)
    rows.broken = True
    executor.sync()
    assert executor.running == {running.key, queued.key} and not executor.event_buffer
    rows.broken = False
    executor.sync()
    assert executor.event_buffer[running.key][0] == TaskInstanceState.FAILED
    # The former scheduler ended before the daemon had this one: Airflow queues it again.
    assert rows.scheduled == [("002", "one")] and queued.key not in executor.event_buffer
    assert not executor.running


def test_workload_that_may_have_arrived_is_killed_when_it_is_withdrawn(executor, daemon, monkeypatch):
    rows = Rows(monkeypatch)
    rows.states = {"001": ("queued", "one")}
    daemon.lost = ["POST"]
    workload = Workload(1, external_executor_id="one")
    hand_over(executor, workload)
    assert workload.ti.key in executor.queued_tasks
    rows.states = {}
    executor.sync()
    executor.sync()
    assert [asked["path"] for asked in daemon.asked("DELETE")] == ["/v0/task/airflow.001"]
    assert not executor.queued_tasks and not executor.running


def test_revoke_kills_and_drops_the_task(executor, daemon):
    workload = Workload(1)
    hand_over(executor, workload)
    executor.revoke_task(ti=workload.ti)
    assert daemon.asked("DELETE")[0]["path"] == "/v0/task/airflow.001"
    assert not executor.running
    executor.get_event_buffer()
    told(daemon, ("airflow.001", "TASK_KILLED"))
    executor.sync()
    assert executor.get_event_buffer() == {}


def test_get_task_log_returns_the_output_or_the_error(executor, daemon):
    daemon.answers["GET"] = [(200, "hello\n"), (404, "none")]
    messages, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == ["hello\n"] and "airflow.001" in messages[0]
    messages, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == [] and "404" in messages[0]


def test_get_task_log_works_without_start(daemon):
    daemon.answers["GET"] = [(200, "hello\n"), (503, {"message": "no leader"})]
    executor = ClusterExecutor()
    _, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == ["hello\n"]
    messages, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == [] and "no leader" in messages[0]


def test_airflow_log_reader_shows_the_output_of_a_running_container(daemon, monkeypatch, tmp_path):
    from airflow.utils.log.file_task_handler import FileTaskHandler

    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "transom_airflow.executor.ClusterExecutor")
    handler = FileTaskHandler(base_log_folder=str(tmp_path))
    monkeypatch.setattr(handler, "_render_filename", lambda ti, number: "attempt=1.log")
    daemon.answers["GET"] = [(200, "these are words\n")]
    running = SimpleNamespace(
        id="001",
        state=TaskInstanceState.RUNNING,
        executor=None,
        try_number=1,
        hostname="",
        triggerer_job=None,
    )
    stream, _ = handler._read(running, 1)
    events = [line.event for line in stream]
    assert "these are words" in events
    assert any(event.startswith("Container of airflow.001: http") for event in events)


def test_terminate_leaves_tasks_running_and_end_waits_for_them(executor, daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.executor.SHUTDOWN_TIMEOUT", 5.0)
    hand_over(executor, Workload(1))
    executor.terminate()
    assert not daemon.asked("DELETE")
    told(daemon, ("airflow.001", "TASK_FINISHED"))
    executor.end()
    assert not executor.running


def test_provider_info_is_valid():
    from importlib import import_module

    from transom_airflow.provider import get_provider_info

    info = get_provider_info()
    for name in info["executors"] + info["extra-links"]:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(import_module(module), attribute)
    assert info["config"]["cluster"]["options"]["api_password"]["sensitive"]


def test_tests_use_the_installed_distribution():
    import transom_airflow

    assert "site-packages" in Path(transom_airflow.__file__).parts


def test_airflow_starts_without_a_warning_about_this_provider():
    command = [sys.executable, "-m", "airflow", "config", "get-value", "core", "parallelism"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip().endswith("32")
    assert "cli" not in done.stderr + done.stdout and "transom" not in done.stderr + done.stdout
