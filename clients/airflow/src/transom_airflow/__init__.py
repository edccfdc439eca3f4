"""Airflow's tasks, and single containers, on a cluster through Transom's workflow port."""

__version__ = "0.1.0"
