"""Kills tasks of the app /web with the `marathon` package: one that is replaced, then one with `scale`.

Arguments: the address of the apps port. Writes the ids of the tasks as they were, as JSON.
"""

import json
import sys

from marathon import MarathonClient
from marathon.exceptions import MarathonHttpError

client = MarathonClient(sys.argv[1])
tasks = sorted(task.id for task in client.list_tasks("web"))
first, second = tasks[0], tasks[1]
gone = "web.instance-0664256e-6771-11e5-94e1-be5b2935a987._app.1"

assert client.kill_given_tasks([first, gone])
assert client.kill_given_tasks([second], scale=True, force=True)
try:
    client.kill_given_tasks(["nonsense"])
except MarathonHttpError as rejection:
    assert rejection.status_code == 400, rejection
    assert "Invalid task id 'nonsense'" in str(rejection), rejection
else:
    raise SystemExit("an id that no task can have was not rejected")
print(json.dumps(tasks))
