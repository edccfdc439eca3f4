"""Runs Airflow tasks and single containers on a Mesos cluster through Transom's workflow port."""

__version__ = "0.1.0"
