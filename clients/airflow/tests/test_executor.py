"""The executor: what it asks for, and what it tells Airflow."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from airflow.models.taskinstancekey import TaskInstanceKey
from airflow.utils.state import TaskInstanceState

from transom_airflow.executor import ClusterExecutor


class Workload:
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


def test_a_workload_reaches_the_daemon_whole_and_without_secrets(executor, daemon):
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
    # It takes up a slot from now on.
    assert executor.running == {workload.ti.key} and not executor.queued_tasks
    assert executor.get_event_buffer() == {workload.ti.key: (TaskInstanceState.QUEUED, "airflow.001")}


def test_states_are_passed_on(executor, daemon):
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
    assert executor.running == {loads[2].ti.key}
    # Nothing is told twice.
    executor.get_event_buffer()
    executor.sync()
    assert executor.get_event_buffer() == {}


def test_a_workload_that_is_refused_fails_and_one_that_finds_nobody_stays(executor, daemon):
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


def test_tasks_are_adopted_by_the_id_of_their_try(executor, daemon):
    daemon.states("TASK_RUNNING", None, "TASK_FINISHED")
    runs, stranger, ended = (Workload(number).ti for number in (1, 2, 3))
    assert executor.try_adopt_task_instances([runs, stranger, ended]) == [stranger]
    assert executor.running == {runs.key}
    # What ended while nobody looked is told.
    assert executor.event_buffer[ended.key][0] == TaskInstanceState.SUCCESS
    told(daemon, ("airflow.001", "TASK_FINISHED"))
    executor.sync()
    assert executor.event_buffer[runs.key][0] == TaskInstanceState.SUCCESS


def test_a_task_is_not_run_twice_because_the_daemon_is_away(executor, daemon):
    url, executor.daemon.url = executor.daemon.url, "http://127.0.0.1:1"
    ti = Workload(1).ti
    assert executor.try_adopt_task_instances([ti]) == []
    executor.sync()
    assert executor.running == {ti.key}
    executor.daemon.url = url
    daemon.states(None)
    executor.sync()
    assert executor.event_buffer[ti.key][0] == TaskInstanceState.FAILED


def test_revoking_kills_and_forgets(executor, daemon):
    workload = Workload(1)
    hand_over(executor, workload)
    executor.revoke_task(ti=workload.ti)
    assert daemon.asked("DELETE")[0]["path"] == "/v0/task/airflow.001"
    assert not executor.running
    executor.get_event_buffer()
    told(daemon, ("airflow.001", "TASK_KILLED"))
    executor.sync()
    assert executor.get_event_buffer() == {}


def test_logs(executor, daemon):
    daemon.answers["GET"] = [(200, "hello\n"), (404, "none")]
    messages, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == ["hello\n"] and "airflow.001" in messages[0]
    messages, logs = executor.get_task_log(Workload(1).ti, 1)
    assert logs == [] and "404" in messages[0]


def test_terminate_leaves_tasks_alone_and_end_waits_for_them(executor, daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.executor.FAREWELL", 5.0)
    hand_over(executor, Workload(1))
    executor.terminate()
    assert not daemon.asked("DELETE")
    told(daemon, ("airflow.001", "TASK_FINISHED"))
    executor.end()
    assert not executor.running


def test_the_provider_is_described():
    from importlib import import_module

    from transom_airflow.provider import get_provider_info

    info = get_provider_info()
    for name in info["executors"] + info["extra-links"]:
        module, attribute = name.rsplit(".", 1)
        assert hasattr(import_module(module), attribute)
    assert info["config"]["cluster"]["options"]["api_password"]["sensitive"]
