"""Runs our operator behind a proxy that loses responses; prints each outcome as one JSON object per line."""

from __future__ import annotations

import json
import sys
import tempfile
from datetime import datetime

from airflow.sdk import DAG
from transom_airflow.operator import ClusterOperator

with tempfile.TemporaryDirectory() as scratch:
    cases = [
        ("quick", "true"),
        # Fails if the job runs or has run before.
        ("alone", f"mkdir {scratch}/alone && sleep 3"),
        ("quick", "true"),
    ]
    for name, command in cases:
        operator = ClusterOperator(
            dag=DAG("once", schedule=None, start_date=datetime(2026, 1, 1)),
            task_id=name,
            image="alpine:3.20",
            command=command,
            poll_interval=1.0,
        )
        try:
            outcome = operator.execute({})["status"]["state"]
        except Exception as error:
            outcome = str(error)
        print(json.dumps({name: outcome}), flush=True)
sys.exit()
