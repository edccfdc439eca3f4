"""Runs the published operator unchanged; prints the outcome of each task as one JSON object per line."""

from __future__ import annotations

import json
from datetime import datetime

from airflow.sdk import DAG
from avmesos_airflow_provider.operators.mesos import MesosOperator

CASES = {
    "text": {"command": "echo 'it is' \"so\"; test \"$A\" = 'b c'", "environment": {"A": "b c"}},
    "list": {"command": ["/bin/sh", "-c", "test \"$1\" = \"it's\"", "sh", "it's"], "mem_limit": "32m"},
    "number": {"command": ["true"], "memlimit": 64, "cpus": 0.1, "disk": 1, "attributes": ["rack:r2"]},
    "again": {"task_id": "list", "command": ["sleep", "1"]},
    "fails": {"command": "exit 3"},
    "waits": {"command": "true", "attributes": ["gpu:true"], "startup_timeout": 2.0},
    "wrong": {"command": "true", "cpus": -1},
}

for name, case in CASES.items():
    arguments = {"task_id": name, "image": "alpine:3.20", "poll_interval": 0.1, **case}
    # One DAG for each task, because task ids are unique within a DAG. The id for the daemon
    # consists of both names.
    dag = DAG("published", schedule=None, start_date=datetime(2026, 1, 1))
    operator = MesosOperator(dag=dag, **arguments)
    try:
        outcome = operator.execute({})["status"]["state"]
    except Exception as error:  # noqa: BLE001
        outcome = str(error)
    print(json.dumps({"case": name, "outcome": outcome}), flush=True)
