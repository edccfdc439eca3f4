"""The error of every failing command."""

from __future__ import annotations

try:
    from avmesos.cli.exceptions import CLIException as Base
except ImportError:  # The published program is not installed, or does not support this Python.
    Base = Exception


class CommandError(Base):  # type: ignore[misc]
    """A command failed. The published program prints the text, adds a period and exits with code 1."""
