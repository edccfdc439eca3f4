"""The tasks that a test of a complete Airflow observes. The test creates files in the folder `flags`."""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from transom_airflow.operator import ClusterOperator

# The alias of one of several executors.
of_all = {"executor": "cluster"}
with DAG("on_the_cluster", schedule=None, params={"flags": "/nowhere"}, default_args=of_all) as dag:
    until = "; until [ -e {{ params.flags }}/%s ]; do sleep 0.2; done"
    BashOperator(task_id="talks", bash_command="echo these are $((40 + 2)) words" + until % "talked")
    BashOperator(task_id="hopeless", bash_command="true", executor_config={"attributes": ["gpu:true"]})
    BashOperator(task_id="huge", bash_command="true", executor_config={"cpus": 4000})
    BashOperator(task_id="typo", bash_command="true", executor_config={"cpu": 1})

    arguments = {"image": "alpine:3.20", "poll_interval": 0.5, "cpus": 0.1, "mem_limit": "32m"}
    ClusterOperator(task_id="fails", command="echo $((41 + 1)) lines; exit 7", **arguments)
    # The test ends each of these by an action of a user in Airflow.
    for name in ("marked", "cleared"):
        ClusterOperator(
            task_id=name,
            command="echo begun $((42 + 0)); exec sleep 1000",
            deferrable=True,
            startup_timeout=None,
            running_timeout=1000,
            **arguments,
        )
