"""Metadata of this distribution for Airflow."""

from __future__ import annotations

from typing import Any

from . import __version__


def _option(description: str, example: str, **more: Any) -> dict[str, Any]:
    return {
        "description": description,
        "type": "string",
        "version_added": __version__,
        "example": example,
        # Options have no defaults: a default would count as set, and hide the value in [mesos].
        "default": None,
        **more,
    }


def get_cli_commands() -> list[Any]:
    """No commands. Airflow 3.3 logs a warning at every start for an executor's provider without this."""
    return []


def get_provider_info() -> dict[str, Any]:
    """Name, executor, extra links and configuration."""
    return {
        "package-name": "transom-airflow",
        "name": "Transom",
        "description": "Runs tasks as containers on a Mesos cluster through a Transom daemon.",
        "versions": [__version__],
        "executors": ["transom_airflow.executor.ClusterExecutor"],
        "extra-links": ["transom_airflow.operator.LogLink"],
        "cli": ["transom_airflow.provider.get_cli_commands"],
        "config": {
            "cluster": {
                "description": "Address and credentials of the Transom daemon; [mesos] is an alias.",
                "options": {
                    "operator_api_url": _option(
                        "Address of the daemon's workflow port. Default: http://localhost:11000.",
                        "http://transom.internal:11000",
                    ),
                    "api_username": _option(
                        "The daemon's api_username, if it requires credentials.", "airflow"
                    ),
                    "api_password": _option("The daemon's api_password.", "secret", sensitive=True),
                },
            }
        },
    }
