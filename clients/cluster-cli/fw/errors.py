"""The error of every failing command."""

from __future__ import annotations

try:
    from avmesos.cli.exceptions import CLIException as Base
except ImportError:  # The published program is missing, or this Python is too new for it.
    Base = Exception


class CommandError(Base):  # type: ignore[misc]
    """A command failed. The published program prints the text, adds a period and exits with code 1."""
