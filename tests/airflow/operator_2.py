"""Runs our operator in a DAG of Airflow 2; prints the outcome of each task as one JSON object per line."""

from __future__ import annotations

import json
from datetime import datetime

from airflow import DAG, __version__
from airflow.operators.python import PythonOperator
from transom_airflow.operator import ClusterOperator

with DAG("two", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    arguments = {"image": "alpine:3.20", "poll_interval": 0.1, "cpus": 0.1, "mem_limit": "32m"}
    finishes = ClusterOperator(
        task_id="finishes",
        # Airflow renders the templates, and no shell interprets the arguments.
        command=[
            "/bin/sh",
            "-c",
            'test "$1" = "it\'s two" && test "$MARK" = é',
            "sh",
            "it's {{ dag.dag_id }}",
        ],
        environment={"MARK": "é"},
        **arguments,
    )
    fails = ClusterOperator(task_id="fails", command="exit 3", retries=0, **arguments)
    deferred = ClusterOperator(task_id="deferred", command=["sleep", "0.5"], deferrable=True, **arguments)
    deferred_fails = ClusterOperator(task_id="deferred_fails", command="exit 4", deferrable=True, **arguments)
    waits = ClusterOperator(
        task_id="waits", command="true", **{**arguments, "attributes": ["gpu:true"]}, waiting_timeout=2
    )

    def look(ti) -> None:
        """Prints the state in the operator's result, which is the job's last status."""
        print(json.dumps({"pulled": ti.xcom_pull("finishes")["status"]["state"]}), flush=True)

    finishes >> PythonOperator(task_id="look", python_callable=look)

run = dag.test()
print(json.dumps({"version": __version__, "run": str(run.state)}), flush=True)
for ti in run.get_task_instances():
    print(json.dumps({"task": ti.task_id, "state": str(ti.state)}), flush=True)

# A web server requests the link; it has not run the operator itself.
[link] = finishes.operator_extra_links
finishes.log_url = None
print(json.dumps({"link": link.get_link(finishes, ti_key=run.get_task_instance("finishes").key)}), flush=True)
