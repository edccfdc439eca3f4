"""The command group `fw` for the published command line of the cluster (`avmesos_cli`).

That program loads this folder by its absolute path, from `plugins` in its configuration file. On a
Python that it does not run on, `python3 /path/to/fw list` runs the same commands without it.
"""

from .plugin import COMMANDS, PLUGIN_CLASS, PLUGIN_NAME, SHORT_HELP, VERSION, Fw

__all__ = ["COMMANDS", "PLUGIN_CLASS", "PLUGIN_NAME", "SHORT_HELP", "VERSION", "Fw"]
