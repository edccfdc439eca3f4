"""Runs our operator on a long job; a test kills this process before the job ends."""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG
from transom_airflow import operator

# The limit that the daemon enforces is then equal to the operator's.
operator.MARGIN = 0.0
operator.ClusterOperator(
    dag=DAG("gone", schedule=None, start_date=datetime(2026, 1, 1)),
    task_id="long",
    image="alpine:3.20",
    command=["sleep", "1000"],
    running_timeout=5,
    startup_timeout=None,
    poll_interval=0.1,
).execute({})
