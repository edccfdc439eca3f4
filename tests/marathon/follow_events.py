"""Follows the events of apps that are deployed, updated and deleted, as users of the `marathon` package do.

Argument: the address of the apps port, of a daemon with `plan_format = "upstream"`. The package raises an error at an
event of an unknown kind and at a plan that is not in Marathon's form; this script ends with it.
"""

import collections
import collections.abc
import os
import sys
import threading
import time

# The package predates Python 3.10, which removed this name; its users set it in the same way.
collections.Iterable = collections.abc.Iterable

from marathon import MarathonClient
from marathon.models import MarathonApp, MarathonHealthCheck
from marathon.models.events import EventFactory, MarathonStatusUpdateEvent

DEADLINE = 60
client = MarathonClient(sys.argv[1])
kind = lambda event: EventFactory.class_to_event[type(event)]


class Follower(threading.Thread):
    """Reads a stream until the script ends, and keeps its events."""

    def __init__(self, **selection):
        super().__init__(daemon=True)
        self.selection, self.events, self.error = selection, [], None
        self.start()

    def run(self):
        try:
            # The stream needs its own client, because a client has only one session.
            for event in MarathonClient(sys.argv[1]).event_stream(**self.selection):
                self.events.append(event)
        except BaseException as error:
            self.error = error

    def wait(self, what, condition):
        """Waits for an event that meets the condition; events before those of earlier calls are skipped."""
        end = time.monotonic() + DEADLINE
        at = getattr(self, "at", 0)
        while time.monotonic() < end:
            if self.error is not None:
                raise SystemExit(f"the stream raised {self.error!r}")
            while at < len(self.events):
                event, at = self.events[at], at + 1
                if condition(event):
                    self.at = at
                    return event
            time.sleep(0.02)
        raise SystemExit(f"timed out waiting for {what}, after {[kind(event) for event in self.events]}")

    def wait_for(self, name, condition=lambda event: True):
        return self.wait(name, lambda event: kind(event) == name and condition(event))


everything = Follower()
everything.wait_for("event_stream_attached")
some = Follower(event_types=[MarathonStatusUpdateEvent, "deployment_success"])
everything.wait_for("event_stream_attached")


def deployed(change):
    """Returns the actions of a deployment in order, and checks the events of each step and of the end."""
    info = everything.wait_for("deployment_info")
    steps = info.plan.steps
    for number, planned in enumerate(steps):
        if number:
            assert everything.wait_for("deployment_info").plan.id == info.plan.id, change
        assert [action.app for action in planned.actions] == ["/web"], change
        assert everything.wait_for("deployment_step_success").plan.id == info.plan.id, change
    assert everything.wait_for("deployment_success").id == info.plan.id, change
    assert some.wait_for("deployment_success").id == info.plan.id, change
    return [action.action for step in steps for action in step.actions]


def ran():
    """The updates with TASK_RUNNING in the selective stream."""
    updates = [event for event in some.events if isinstance(event, MarathonStatusUpdateEvent)]
    return [event for event in updates if event.app_id == "/web" and event.task_status == "TASK_RUNNING"]


check = MarathonHealthCheck(
    protocol="COMMAND",
    command="true",
    delay_seconds=0,
    grace_period_seconds=5,
    interval_seconds=1,
    timeout_seconds=5,
)
app = MarathonApp(cmd="sleep 1000", cpus=0.1, mem=16, instances=1, health_checks=[check])
client.create_app("/web", app)
posted = everything.wait_for("api_post_event")
assert posted.app_definition["id"] == "/web" and posted.uri == "/v2/apps", vars(posted)
assert deployed("create") == ["StartApplication", "ScaleApplication"]
# A deployment succeeds only after its tasks run.
running = ran()[0]
assert {event.task_id for event in ran()} == {running.task_id}, [vars(event) for event in ran()]
assert running.task_id.startswith("web.") and running.host and running.slave_id and running.version, vars(running)

client.scale_app("/web", instances=2)
assert deployed("scale") == ["ScaleApplication"]
assert len({event.task_id for event in ran()}) == 2, [vars(event) for event in ran()]

client.update_app("/web", MarathonApp(cmd="sleep 2000"))
assert deployed("update") == ["RestartApplication"]

client.delete_app("/web")
assert everything.wait_for("app_terminated_event").app_id == "/web"
some.wait_for("deployment_success")

# Both streams have the start and the end of each task, and the selective stream has only the
# selected kinds.
for follower in (everything, some):
    states = collections.defaultdict(list)
    for event in follower.events:
        if isinstance(event, MarathonStatusUpdateEvent):
            states[event.task_id].append(event.task_status)
    assert len(states) == 4, states
    for task, seen in states.items():
        assert "TASK_RUNNING" in seen and seen[-1] in ("TASK_KILLED", "TASK_FINISHED"), (task, seen)
seen = collections.Counter(kind(event) for event in everything.events)
for name in ("instance_changed_event", "health_status_changed_event", "group_change_success"):
    assert seen[name], seen
assert {kind(event) for event in some.events} == {"status_update_event", "deployment_success"}
for follower in (everything, some):
    assert follower.error is None, follower.error
# The followers' threads are still waiting for events.
sys.stdout.flush()
os._exit(0)
