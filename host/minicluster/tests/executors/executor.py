"""A Mesos executor for the tests: it only reports tasks as running and does what it is told.

A task whose data is "finish" finishes immediately. A message "crash" ends the process with status 3,
"env" is answered with its environment as JSON, and any other with itself. With --stubborn, SHUTDOWN
is ignored.
"""

import base64
import http.client
import json
import os
import sys
import time
import uuid

AGENT = os.environ["MESOS_AGENT_ENDPOINT"]
IDS = {
    "framework_id": {"value": os.environ["MESOS_FRAMEWORK_ID"]},
    "executor_id": {"value": os.environ["MESOS_EXECUTOR_ID"]},
}
tasks = {}  # those that have not ended
unacknowledged_tasks = {}
unacknowledged_updates = {}


def post(connection, call):
    body = json.dumps({**IDS, **call})
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    connection.request("POST", "/api/v1/executor", body, headers)
    return connection.getresponse()


def send(call):
    connection = http.client.HTTPConnection(AGENT)
    try:
        answer = post(connection, call)
        text = answer.read()
        if answer.status != 202:
            print(call["type"], answer.status, text, file=sys.stderr, flush=True)
    except (OSError, http.client.HTTPException) as error:
        print(call["type"], error, file=sys.stderr, flush=True)
    finally:
        connection.close()


def update(task_id, state):
    update_id = base64.b64encode(uuid.uuid4().bytes).decode()
    status = {
        "task_id": {"value": task_id},
        "executor_id": IDS["executor_id"],
        "source": "SOURCE_EXECUTOR",
        "state": state,
        "timestamp": time.time(),
        "uuid": update_id,
        "message": "told by executor.py",
    }
    unacknowledged_updates[update_id] = {"status": status}
    send({"type": "UPDATE", "update": {"status": status}})
    if state not in ("TASK_STARTING", "TASK_RUNNING"):
        tasks.pop(task_id, None)


def message(data):
    send({"type": "MESSAGE", "message": {"data": base64.b64encode(data).decode()}})


def handle(event):
    kind = event["type"]
    if kind == "LAUNCH":
        task = event["launch"]["task"]
        task_id = task["task_id"]["value"]
        tasks[task_id] = unacknowledged_tasks[task_id] = task
        update(task_id, "TASK_RUNNING")
        if base64.b64decode(task.get("data", "")) == b"finish":
            update(task_id, "TASK_FINISHED")
    elif kind == "KILL":
        update(event["kill"]["task_id"]["value"], "TASK_KILLED")
    elif kind == "ACKNOWLEDGED":
        unacknowledged_tasks.pop(event["acknowledged"]["task_id"]["value"], None)
        unacknowledged_updates.pop(event["acknowledged"]["uuid"], None)
    elif kind == "MESSAGE":
        data = base64.b64decode(event["message"]["data"])
        if data == b"crash":
            os._exit(3)
        message(json.dumps(dict(os.environ)).encode() if data == b"env" else data)
    elif kind == "SHUTDOWN" and "--stubborn" not in sys.argv:
        for task_id in list(tasks):
            update(task_id, "TASK_KILLED")
        sys.exit(0)


def subscribe():
    """Handles the events of one subscription until it ends."""
    connection = http.client.HTTPConnection(AGENT)
    try:
        answer = post(connection, {
            "type": "SUBSCRIBE",
            "subscribe": {
                "unacknowledged_tasks": list(unacknowledged_tasks.values()),
                "unacknowledged_updates": list(unacknowledged_updates.values()),
            },
        })
        if answer.status != 200:
            raise http.client.HTTPException(f"{answer.status} {answer.read()}")
        while True:
            length = b""
            while not length.endswith(b"\n"):
                byte = answer.read(1)
                if not byte:
                    return
                length += byte
            handle(json.loads(answer.read(int(length))))
    except (OSError, ValueError, http.client.HTTPException) as error:
        print("subscription:", error, file=sys.stderr, flush=True)
    finally:
        connection.close()


while True:
    subscribe()
    if os.environ["MESOS_CHECKPOINT"] != "1":
        sys.exit(1)
    time.sleep(0.1)
