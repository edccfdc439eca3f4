"""What a DAG on the cluster looks like: tasks of Airflow's own in containers, and a container as a task.

With `[core] executor = transom_airflow.executor.ClusterExecutor` each task runs in a container of its own; the operator starts
one more, of any image, wherever the task itself runs.
"""

from __future__ import annotations

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, task
from transom_airflow.operator import ClusterOperator

with DAG("cluster_example", schedule=None, params={"seconds": 5}, tags=["cluster"]) as dag:
    hello = BashOperator(
        task_id="hello",
        bash_command="echo hello from $(hostname)",
        # What the task's own container asks of the cluster.
        executor_config={"cpus": 0.5, "mem_limit": "300m"},
    )

    slow = BashOperator(task_id="slow", bash_command="sleep {{ params.seconds }}")

    @task
    def square(number: int) -> int:
        """One task instance for each number."""
        return number * number

    squares = square.expand(number=[1, 2, 3])

    container = ClusterOperator(
        task_id="container",
        image="alpine:3.20",
        # Arguments reach the container as they are: no shell takes them apart.
        command=["/bin/echo", "this is run {{ run_id }}, and it's \"quoted\""],
        cpus=0.1,
        mem_limit="32m",
        poll_interval=0.5,
        waiting_timeout=300,
        running_timeout=3600,
    )

    fails = BashOperator(task_id="fails", bash_command="exit 3", retries=0)

    hello >> [slow, squares, container, fails]
