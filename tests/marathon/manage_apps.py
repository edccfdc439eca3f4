"""Manages apps, groups and deployments as users of the `marathon` package do.

Argument: the address of the apps port. Ends with an error at the first answer that the package or
this script does not expect.
"""

import collections
import collections.abc
import sys
import time

# The package predates Python 3.10, which removed this name; its users set it in the same way.
collections.Iterable = collections.abc.Iterable

from marathon import MarathonClient
from marathon.exceptions import ConflictError, MarathonHttpError, NotFoundError
from marathon.models import MarathonApp
from marathon.models.group import MarathonGroup

client = MarathonClient(sys.argv[1])
DEADLINE = 60


def eventually(what, condition):
    """Waits until the condition holds, and returns what it found."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.1)
    raise SystemExit(f"timed out waiting for {what}")


def settled():
    eventually("the end of the deployments", lambda: not client.list_deployments())


def running(app_id, count):
    """Waits until an app has this number of running tasks; returns their ids."""
    settled()
    tasks = lambda: [it for it in client.list_tasks(app_id) if it.state == "TASK_RUNNING"]
    return sorted(it.id for it in eventually(f"{count} tasks of {app_id}", lambda: len(tasks()) == count and tasks()))


def sleeper(**more):
    return MarathonApp(cmd="sleep 1000", cpus=0.1, mem=16, **more)


assert b"pong" in client.ping()
assert client.get_info().framework_id
assert client.get_leader()["leader"]

# An app.
created = client.create_app("/web", sleeper(instances=1, labels={"team": "a"}))
assert created.id == "/web", created
[task] = running("/web", 1)
try:
    client.create_app("/web", sleeper())
except ConflictError:
    pass
else:
    raise SystemExit("an app was created twice")
client.scale_app("/web", instances=2)
assert task in running("/web", 2)
first = client.get_app("/web").version
client.update_app("/web", MarathonApp(labels={"team": "b"}))
assert task in running("/web", 2), "labels change in place"
assert client.get_app("/web").labels == {"team": "b"}
client.restart_app("/web")
assert task not in running("/web", 2)
client.update_app("/web", MarathonApp(cmd="sleep 2000"))
settled()
client.rollback_app("/web", first)
settled()
assert client.get_app("/web").cmd == "sleep 1000"
versions = client.list_versions("/web")
assert len(versions) >= 4, versions
assert client.get_version("/web", first).cmd == "sleep 1000"
[app] = client.list_apps(label="team==a")
assert app.id == "/web" and app.tasks_running == 2, app
one = running("/web", 2)[0]
client.kill_task("/web", one, scale=True)
assert running("/web", 1) != [one]
assert client.list_queue() == []
try:
    client.reset_delay("/web")
except NotFoundError:
    pass
else:
    raise SystemExit("an app that waits for nothing was in the queue")

# A group, deployed in the order of its dependencies.
shop = MarathonGroup(
    id="/shop",
    groups=[
        {"id": "db", "apps": [sleeper(id="pg").json_repr(minimal=True)]},
        {
            "id": "front",
            "dependencies": ["/shop/db"],
            "apps": [sleeper(id="api").json_repr(minimal=True)],
        },
    ],
)
client.create_group(shop)
running("/shop/front/api", 1)
shown = client.get_group("/shop")
assert [group.id for group in shown.groups] == ["/shop/db", "/shop/front"], shown
assert shown.groups[1].dependencies == ["/shop/db"], shown
assert [group.id for group in client.list_groups()] == ["/shop"]
client.scale_group("/shop/front", 2)
running("/shop/front/api", 2)
client.update_apps([MarathonApp(id="/shop/db/pg", instances=2), MarathonApp(id="/web", instances=2)])
running("/shop/db/pg", 2)
running("/web", 2)

# A deployment that cannot finish is reverted.
client.update_app("/web", MarathonApp(cpus=1000))
[deployment] = eventually("the deployment", client.list_deployments)
assert deployment.affected_apps == ["/web"], deployment
assert deployment.current_actions[0].app == "/web", deployment
try:
    client.scale_app("/web", instances=3)
except ConflictError:
    pass
else:
    raise SystemExit("a locked app was changed")
client.delete_deployment(deployment.id)
running("/web", 2)
assert client.get_app("/web").cpus == 0.1

client.delete_group("/shop")
client.delete_app("/web")
settled()
assert client.list_apps() == []
try:
    client.get_app("/web")
except NotFoundError:
    pass
except MarathonHttpError as rejection:
    raise SystemExit(f"not as expected: {rejection}") from rejection
