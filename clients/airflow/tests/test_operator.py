"""The operator: the requests that it sends, and how it handles each answer."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, TaskDeferred

from transom_airflow.daemon import Daemon
from transom_airflow.follow import Follow, Limits
from transom_airflow.operator import ClusterOperator
from transom_airflow.output import Output
from transom_airflow.trigger import ClusterTrigger

FIXTURES = Path(__file__).parents[3] / "tests" / "fixtures" / "workflow"


def operator(**more):
    more = {"task_id": "t1", "image": "alpine:3.20", "poll_interval": 0.01, **more}
    return ClusterOperator(dag=DAG("d1", schedule=None), **more)


def cases():
    found = [json.loads(path.read_text()) for path in sorted(FIXTURES.glob("*.json"))]
    found = [case for case in found if case["kind"] == "operator"]
    assert len(found) >= 11
    return found


def by_id(case):
    return case["id"]


@pytest.mark.parametrize("case", [case for case in cases() if "json" in case["expect"]], ids=by_id)
def test_bodies_match_the_recordings(case, daemon):
    daemon.states("TASK_FINISHED")
    given = case["given"]
    operator(task_id=given["task_id"], image=given["image"], **case["input"]).execute({})
    [asked] = daemon.asked("POST")
    assert asked["path"] == "/v0/queue_command"
    # The recorded body, and the fields that this operator adds: they make the request idempotent, and end the
    # job if its client does not.
    body = asked["json"]
    added = {key: body.pop(key) for key in ("unique", "request_key", "max_wait", "max_runtime")}
    assert added["unique"] is True and added["max_wait"] == added["max_runtime"] == 330.0
    assert body == case["expect"]["json"]
    for name, value in case["expect"]["headers"].items():
        assert asked["headers"].get(name) == value


def answers(case):
    given = next((value for key, value in case["input"].items() if key.endswith("answers")), None)
    return given if given and all(isinstance(it, str) for it in given) else None


@pytest.mark.parametrize(
    "case", [case for case in cases() if isinstance(case["input"], dict) and answers(case)], ids=by_id
)
def test_reactions_match_the_recordings(case, daemon):
    daemon.states(*answers(case))
    with pytest.raises(AirflowException) as raised:
        operator(**case["given"]).execute({})
    message = case["expect"].get("message", "").removesuffix(": {...}")
    assert message in str(raised.value)
    if "gets" in case["expect"]:
        assert len(daemon.asked("GET", "/v0/task/")) == case["expect"]["gets"]


@pytest.mark.parametrize(
    ("method", "answer", "prefix"),
    [
        ("POST", (500, "x"), "Unable to queue Mesos task airflow.d1.t1: 500 Server Error"),
        ("POST", (422, "bad"), "Unable to queue Mesos task airflow.d1.t1: 422 Client Error"),
        ("GET", (401, "x"), "Unable to read Mesos task airflow.d1.t1: 401 Client Error"),
        ("GET", (500, "x"), "Unable to read Mesos task airflow.d1.t1: 500 Server Error"),
        ("GET", (200, "<html>"), "Unable to read Mesos task airflow.d1.t1: "),
        ("GET", (200, "[1]"), "Unable to read Mesos task airflow.d1.t1: "),
        ("GET", (200, {"status": None}), "Unable to read Mesos task airflow.d1.t1: "),
        ("GET", (200, {"status": {"state": "TASK_RUNNING", "agent_id": 7}}), "Unable to read Mesos task "),
    ],
)
def test_errors_and_invalid_documents_fail_immediately_and_kill_the_container(method, answer, prefix, daemon):
    daemon.answers[method] = [answer]
    with pytest.raises(AirflowException) as raised:
        operator().execute({})
    assert str(raised.value).startswith(prefix)
    assert len(daemon.asked("GET", "/v0/task/")) == (1 if method == "GET" else 0)
    # A body that was rejected has queued nothing.
    kills = [asked["path"] for asked in daemon.asked("DELETE")]
    assert kills == ([] if answer[0] == 422 else ["/v0/task/airflow.d1.t1"])


RUNNING, ENDED = (
    {"status": {"task_id": {"value": "t"}, "state": it}} for it in ("TASK_RUNNING", "TASK_FINISHED")
)


@pytest.mark.parametrize(
    "bad", [(502, "<html>"), (503, {"message": "no leader"}), (504, ""), ("cut", RUNNING)]
)
def test_one_bad_answer_does_not_end_the_task(bad, daemon, capsys):
    daemon.answers["POST"] = [bad, (200, "Ok")]
    daemon.answers["GET"] = [(200, RUNNING), bad, bad, (200, RUNNING), (200, ENDED)]
    assert operator().execute({}) == ENDED
    assert not daemon.asked("DELETE")
    assert capsys.readouterr().out.count("still following airflow.d1.t1") == 1
    # The same in the triggerer.
    daemon.answers["GET"] = [bad, (200, ENDED)]
    trigger = ClusterTrigger("t", [time.time(), None, None, None, None], daemon.url, 0.01)

    async def fired():
        return [event.payload async for event in trigger.run()]

    [outcome] = asyncio.run(fired())
    assert outcome["error"] is None and outcome["status"] == ENDED


def test_bad_answers_until_the_timeout_fail_the_task_and_kill_its_container(daemon):
    daemon.answers["GET"] = [(503, {"message": "no leader"})]
    daemon.answers["DELETE"] = [(503, "x"), ("cut", "{"), (200, "{}")]
    with pytest.raises(AirflowException, match=r"^Timed out waiting for Mesos task .*: 503 Server Error"):
        operator(startup_timeout=0.3).execute({})
    assert len(daemon.asked("DELETE")) == 3


def test_container_is_killed_when_following_it_fails_unexpectedly(daemon, monkeypatch):
    def broken(self):
        raise RuntimeError("no room for the log")

    monkeypatch.setattr(Follow, "poll", broken)
    with pytest.raises(RuntimeError, match="no room"):
        operator().execute({})
    assert len(daemon.asked("DELETE")) == 1


def test_unreadable_output_does_not_delay_each_look_at_the_job(daemon, monkeypatch):
    daemon.by_path = {"/v0/task/t/log": (503, {"message": "the agent is unavailable"})}
    lines = []
    output = Output(Daemon(), "t", lines.append)
    monkeypatch.setattr(Daemon, "output", lambda self, *_: self._request("GET", "/v0/task/t/log"))
    for _ in range(5):
        output.copy()
    asked = [it for it in daemon.requests if it["path"] == "/v0/task/t/log"]
    assert len(asked) == 1 and not lines
    output.copy(last=True)
    assert len(lines) == 2


def test_silent_daemon_occupies_no_thread_of_other_triggers(daemon):
    daemon.answers["GET"] = [("silent", "")]

    async def other_work_is_done():
        names = set()
        default = asyncio.to_thread(lambda: names.add(threading.current_thread().name))
        trigger = ClusterTrigger("t", [time.time(), None, None, None, None], daemon.url, 0.01)
        polling = asyncio.ensure_future(anext(trigger.run()))
        while not daemon.asked("GET"):
            await asyncio.sleep(0.01)
        await default
        polls = [it.name for it in threading.enumerate() if it.name.startswith("transom-poll")]
        polling.cancel()
        return names, polls

    names, polls = asyncio.run(other_work_is_done())
    # The request runs in a thread of our own.
    assert polls and not names & set(polls)


def test_output_of_a_command_is_a_password_without_its_line_break(daemon, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CLUSTER__API_USERNAME", "user")
    monkeypatch.setenv("AIRFLOW__CLUSTER__API_PASSWORD_CMD", "echo password")
    daemon.states("TASK_RUNNING")
    Daemon().task("t")
    assert daemon.requests[0]["headers"]["Authorization"] == "Basic dXNlcjpwYXNzd29yZA=="


def test_daemon_is_reached_without_the_proxy_of_the_environment(daemon, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    daemon.states("TASK_RUNNING")
    assert Daemon(daemon.url).task("t") is not None


def test_image_is_required():
    with pytest.raises(TypeError, match="missing keyword argument 'image'"):
        ClusterOperator(task_id="t1")


@pytest.mark.parametrize(
    "state", ["TASK_FAILED", "TASK_ERROR", "TASK_KILLED", "TASK_LOST", "TASK_UNREACHABLE", "TASK_GONE"]
)
def test_failure_states_fail_the_task(state, daemon):
    daemon.states("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", state)
    with pytest.raises(AirflowException, match=f"finished in state {state}"):
        operator().execute({})


def test_execute_returns_the_last_status(daemon):
    daemon.states(None, "TASK_STAGING", "TASK_FINISHED")
    assert operator().execute({})["status"]["state"] == "TASK_FINISHED"


def test_each_try_has_its_own_id(daemon):
    daemon.states("TASK_FINISHED")
    for number in (1, 2):
        operator().execute({"ti": SimpleNamespace(id=f"00{number}")})
    first, second = (asked["json"]["airflow_task_id"] for asked in daemon.asked("POST"))
    assert (first, second) == ("airflow.d1.t1.001", "airflow.d1.t1.002")
    # A try without a weight has the weight of its task.
    assert [it["json"]["priority"] for it in daemon.asked("POST")] == [1, 1]
    old = SimpleNamespace(run_id="manual__2026-11-20T00:00:00+00:00", try_number=1, map_index=-1)
    operator().execute({"ti": old})
    path = daemon.asked("GET")[-1]["path"]
    assert path == "/v0/task/airflow.d1.t1.manual__2026-11-20T00%3A00%3A00%2B00%3A00.1.-1"


def test_execute_retries_an_unreachable_daemon_until_the_timeout(monkeypatch):
    monkeypatch.setattr("transom_airflow.operator.KILL_TIMEOUT", 0.1)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(AirflowException, match=r"Timed out waiting for Mesos task airflow\.d1\.t1"):
            operator(scheduler_url=url, startup_timeout=0.2).execute({})


def test_poll_retries_an_unreachable_daemon_until_the_timeout(daemon):
    daemon.states("TASK_RUNNING")
    task = operator(startup_timeout=0.3)
    follow = Follow(Daemon(), "t", task.limits(time.time()))
    assert follow.poll() is None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        follow.daemon = Daemon(f"http://127.0.0.1:{free.getsockname()[1]}")
        while (outcome := follow.poll()) is None:
            pass
    assert outcome["kill"]
    assert outcome["error"].startswith("Timed out waiting for Mesos task t (daemon http://127.0.0.1:")


def test_request_is_repeated_with_the_same_key_after_a_lost_response(daemon):
    daemon.lost = ["POST", "POST"]
    daemon.states("TASK_FINISHED")
    operator().execute({})
    bodies = [asked["json"] for asked in daemon.asked("POST")]
    assert len(bodies) == 3 and bodies[0] == bodies[1] == bodies[2]
    assert bodies[0]["unique"] is True and bodies[0]["request_key"]
    # Another call has another request key.
    operator().execute({})
    assert daemon.asked("POST")[-1]["json"]["request_key"] != bodies[0]["request_key"]


def test_existing_job_with_the_same_key_is_followed(daemon):
    daemon.lost = ["POST"]
    daemon.answers["POST"] = [(409, {"message": "it is active"})]
    daemon.states("TASK_RUNNING", "TASK_FINISHED")
    operator().execute({})
    assert len(daemon.asked("POST")) == 2 and not daemon.asked("DELETE")


def test_active_job_with_another_key_is_not_followed(daemon, monkeypatch):
    daemon.answers["POST"] = [(409, {"message": "it is active"}), (200, "Ok")]
    leftover = {"status": {"task_id": {"value": "t"}, "state": "TASK_RUNNING"}, "request_key": "another"}
    daemon.answers["GET"] = [
        (200, leftover),
        (200, {"status": {"task_id": {"value": "t"}, "state": "TASK_FINISHED"}}),
    ]
    operator().execute({})
    assert len(daemon.asked("POST")) == 2
    # The operator waits for a job that stays active until its timeout, and does not kill it.
    daemon.answers["POST"] = [(409, {"message": "it is active"})]
    daemon.answers["GET"] = [(200, leftover)]
    with pytest.raises(AirflowException, match="a job of another request with this id is active"):
        operator(startup_timeout=0.1).execute({})
    assert not daemon.asked("DELETE")


def test_timeouts_are_sent_with_the_job():
    def limits(**more):
        found = operator(**more).daemon_limits()
        return found.get("max_wait"), found.get("max_runtime")

    assert limits() == (330.0, 330.0)
    assert limits(startup_timeout=None) == (None, None)
    assert limits(waiting_timeout=60, running_timeout=3600) == (90.0, 3630.0)
    assert limits(startup_timeout=None, execution_timeout=timedelta(minutes=2)) == (150.0, 150.0)
    assert limits(startup_timeout=0) == (30.0, 30.0)


def test_container_output_is_copied_into_the_tasks_log(daemon, monkeypatch):
    lines = []
    output = Output(Daemon(), "t", lines.append)
    # The end of a part splits a character and a line.
    text = "größe\nnext".encode()
    daemon.written = {"stdout": text[:3], "stderr": b""}
    output.copy()
    assert lines == []
    daemon.written = {"stdout": text, "stderr": b"oops\r\n\xff"}
    output.copy()
    assert lines == ["größe", "[stderr] oops"]
    output.copy(last=True)
    assert lines == ["größe", "[stderr] oops", "next", "[stderr] \ufffd"]
    # Another instance continues at the last offset.
    daemon.written["stdout"] += b" more\n"
    Output(Daemon(), "t", lines.append, output.read).copy(last=True)
    assert lines[4:] == [" more"]


def test_copied_output_is_limited(daemon, monkeypatch):
    monkeypatch.setattr("transom_airflow.output.MAX_COPIED", 1 << 20)
    daemon.written["stdout"] = b"x\n" * (1 << 20)
    lines = []
    Output(Daemon(), "t", lines.append).copy(last=True)
    assert lines.count("x") == 1 << 19
    [said] = [line for line in lines if line != "x"]
    assert (
        said == f"Only the first 1 MiB of stdout are copied here; the rest is at {daemon.url}/v0/task/t/log"
    )
    # A line without an end is split and not buffered without limit.
    daemon.written["stdout"] = b"y" * 200_000
    pieces = []
    monkeypatch.setattr("transom_airflow.daemon.MAX_CHUNK", 50_000)
    Output(Daemon(), "t", pieces.append).copy()
    assert [len(piece) for piece in pieces] == [100_000, 100_000]


def test_unreadable_output_is_reported_only_at_the_end():
    lines = []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        output = Output(Daemon(f"http://127.0.0.1:{free.getsockname()[1]}"), "t", lines.append)
        output.copy()
        assert lines == []
        output.copy(last=True)
    assert len(lines) == 2 and lines[0].startswith("Reading the container's stdout failed")


def test_failure_names_task_state_agent_and_log(daemon, capsys):
    daemon.written["stdout"] = b"the last words\n"
    failed = {
        "task_id": {"value": "t"},
        "state": "TASK_FAILED",
        "message": "Command exited with status 3",
        "agent_id": {"value": "S7"},
    }
    daemon.answers["GET"] = [(200, {"status": failed})]
    with pytest.raises(AirflowException) as raised:
        operator().execute({})
    assert str(raised.value) == (
        "Mesos task airflow.d1.t1 finished in state TASK_FAILED: Command exited with status 3 on agent S7. "
        f"Its output: {daemon.url}/v0/task/airflow.d1.t1/log"
    )
    assert capsys.readouterr().out.count("the last words") == 1
    with pytest.raises(AirflowException):
        operator(container_logs=False).execute({})
    assert "the last words" not in capsys.readouterr().out


def test_log_link_is_set_before_the_end(daemon):
    pushed = {}

    class Ti:
        id = "001"

        def xcom_push(self, key, value):
            assert not daemon.asked("POST")
            pushed[key] = value

    daemon.states("TASK_FINISHED")
    task = operator()
    task.execute({"ti": Ti()})
    [link] = task.operator_extra_links
    assert pushed == {link.xcom_key: f"{daemon.url}/v0/task/airflow.d1.t1.001/log"}


def test_pending_reason_is_in_the_tasks_log_once(daemon, capsys, monkeypatch):
    monkeypatch.setattr("transom_airflow.follow.FIRST_REASON", 0.0)
    monkeypatch.setattr("transom_airflow.follow.REASON_INTERVAL", 0.0)
    daemon.states("TASK_STAGING", "TASK_STAGING", "TASK_STAGING", "TASK_FINISHED")
    why = {
        "code": "UnfulfilledConstraint",
        "message": "no active agent satisfies `gpu:true`",
        "unsatisfied_constraints": ["gpu:true"],
    }
    daemon.reasons = {"airflow.d1.t1": why}
    operator().execute({})
    out = capsys.readouterr().out
    assert out.count("airflow.d1.t1 is pending: no active agent satisfies `gpu:true`") == 1


def test_trigger_kills_the_container_of_a_marked_task(daemon):
    arguments = {"task_id": "t", "limits": [0.0, None, None, None, None], "poll_interval": 0.01}
    # The daemon does not answer the first request.
    daemon.lost = ["DELETE"]
    asyncio.run(ClusterTrigger(url=daemon.url, **arguments).on_kill())
    assert [it["path"] for it in daemon.asked("DELETE")] == ["/v0/task/t", "/v0/task/t"]
    daemon.answers["DELETE"] = [(503, "x"), (403, "x")]
    asyncio.run(ClusterTrigger(url=daemon.url, **arguments).on_kill())
    assert len(daemon.asked("DELETE")) == 4


def test_triggerer_kills_only_the_container_of_the_marked_task(daemon):
    from airflow.jobs.triggerer_job_runner import TriggerRunner

    daemon.states("TASK_RUNNING")

    async def cancelled(by_user):
        runner = TriggerRunner()
        trigger = ClusterTrigger("t", [time.time(), None, None, None, None], daemon.url, 0.01)
        runner.triggers[1] = {"task": None, "is_watcher": False, "name": "marked", "events": 0}
        task = asyncio.create_task(runner.run_trigger(1, trigger))
        runner.triggers[1]["task"] = task
        looks = len(daemon.asked("GET"))
        while len(daemon.asked("GET")) == looks:
            await asyncio.sleep(0.01)
        if by_user:
            runner.to_cancel.append(1)
            await runner.cancel_triggers()
        else:
            # Like a triggerer that stops; another triggerer continues.
            task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancelled(by_user=False))
    assert not daemon.asked("DELETE")
    asyncio.run(cancelled(by_user=True))
    assert [it["path"] for it in daemon.asked("DELETE")] == ["/v0/task/t"]


def test_kill_continues_when_the_triggerer_cancels_repeatedly(daemon):
    from airflow.jobs.triggerer_job_runner import TriggerRunner

    daemon.states("TASK_RUNNING")
    # The daemon does not answer the first three requests, so the kill has to be repeated.
    daemon.lost = ["DELETE", "DELETE", "DELETE"]

    async def marked():
        runner = TriggerRunner()
        trigger = ClusterTrigger("t", [time.time(), None, None, None, None], daemon.url, 0.05)
        runner.triggers[1] = {"task": None, "is_watcher": False, "name": "marked", "events": 0}
        task = asyncio.create_task(runner.run_trigger(1, trigger))
        runner.triggers[1]["task"] = task
        while not daemon.asked("GET"):
            await asyncio.sleep(0.01)
        # The triggerer cancels the trigger repeatedly until it has ended.
        while not task.done():
            runner.to_cancel.append(1)
            await runner.cancel_triggers()
            await asyncio.sleep(0.01)

    asyncio.run(marked())
    deadline = time.monotonic() + 30
    while len(daemon.asked("DELETE")) < 4:
        assert time.monotonic() < deadline, daemon.asked("DELETE")
        time.sleep(0.01)
    assert [it["path"] for it in daemon.asked("DELETE")] == ["/v0/task/t"] * 4


def test_trigger_stops_killing_after_the_timeout(monkeypatch):
    monkeypatch.setattr("transom_airflow.trigger.KILL_TIMEOUT", 0.2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        trigger = ClusterTrigger("t", [0.0, None, None, None, None], url, 0.01)
        asyncio.run(trigger.on_kill())


def test_pending_task_is_killed_after_the_timeout_with_its_reason(daemon):
    daemon.states("TASK_STAGING")
    with pytest.raises(AirflowException, match="pending: no agent has room"):
        operator(startup_timeout=None, waiting_timeout=0.1).execute({})
    assert daemon.asked("DELETE")[0]["path"] == "/v0/task/airflow.d1.t1"


def test_zero_timeout_fails_without_a_request(daemon):
    daemon.states("TASK_FINISHED")
    with pytest.raises(AirflowException, match=r"^Timed out waiting for Mesos task airflow\.d1\.t1$"):
        operator(startup_timeout=0).execute({})
    assert [(it["method"], it["path"]) for it in daemon.requests] == [
        ("POST", "/v0/queue_command"),
        ("DELETE", "/v0/task/airflow.d1.t1"),
    ]


def test_limits_passed_depends_on_state_and_time():
    def passed(state, **more):
        limits = Limits(**{"begun": 0.0, "startup": None, "waiting": None, "running": None, **more})
        return limits.passed(state)

    long_ago = {"begun": 0.0}
    assert not passed("TASK_RUNNING", **long_ago)
    assert passed("TASK_RUNNING", startup=300.0)
    assert passed(None, startup=300.0)
    # With `running`, the limit `startup` no longer applies when the task runs.
    assert not passed("TASK_RUNNING", startup=300.0, running=60.0)
    assert passed("TASK_RUNNING", running=60.0, since=1.0)
    assert passed("TASK_STAGING", waiting=60.0)
    assert not passed("TASK_RUNNING", waiting=60.0)


def test_on_kill_kills_and_only_logs_failures(daemon):
    killed = operator()
    killed._cluster_task = "airflow.d1.t1"
    killed.on_kill()
    daemon.answers["DELETE"] = [(405, "x")]
    killed.on_kill()
    assert len(daemon.asked("DELETE")) == 2


def test_deferrable_operator_waits_in_the_triggerer(daemon):
    task = operator(deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute({"ti": SimpleNamespace(id="001")})
    path, arguments = deferred.value.trigger.serialize()
    assert path == "transom_airflow.trigger.ClusterTrigger"
    json.dumps(arguments)
    daemon.states("TASK_RUNNING", "TASK_FINISHED")

    async def first(trigger):
        async for event in trigger.run():
            return event

    event = asyncio.run(first(ClusterTrigger(**arguments)))
    assert operator().execute_complete({}, event.payload)["status"]["state"] == "TASK_FINISHED"
    daemon.states("TASK_FAILED")
    event = asyncio.run(first(ClusterTrigger(**arguments)))
    with pytest.raises(AirflowException, match="TASK_FAILED"):
        operator().execute_complete({}, event.payload)


def test_credentials_are_read_from_either_section(daemon, monkeypatch):
    monkeypatch.delenv("AIRFLOW__CLUSTER__OPERATOR_API_URL")
    for key, value in {
        "OPERATOR_API_URL": daemon.url + "/",
        "API_USERNAME": "user",
        "API_PASSWORD": "password",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__MESOS__{key}", value)
    daemon.states("TASK_FINISHED")
    task = operator()
    task.execute({})
    assert daemon.requests[0]["headers"]["Authorization"] == "Basic dXNlcjpwYXNzd29yZA=="
    [link] = task.operator_extra_links
    assert link.get_link(task, ti_key=None) == f"{daemon.url}/v0/task/airflow.d1.t1/log"


def test_status_is_requested_again_after_the_daemon_was_unreachable(daemon):
    class Flaky:
        def __init__(self, real):
            self.real, self.url, self.times = real, real.url, 0

        def task(self, task_id):
            import requests

            self.times += 1
            if self.times == 1:
                raise requests.exceptions.ConnectionError
            return self.real.task(task_id)

    daemon.states("TASK_FINISHED")
    follow = Follow(Flaky(Daemon()), "t", Limits(0.0, None, None, None))
    assert follow.poll() is None
    assert follow.poll()["error"] is None
