"""The commands, in the form that the published program expects.

That program parses the command line with `COMMANDS`, creates the class that `PLUGIN_CLASS` names and calls
the method with the command's name. Its parser requires options before arguments.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from .config import Settings
from .errors import CommandError
from .frameworks import Cluster, shown

try:
    from avmesos.cli.plugins import PluginBase
except ImportError:  # The published program is not installed, or does not support this Python.

    class PluginBase:  # type: ignore[no-redef]
        """The part of the published program's class that the commands need."""

        def __init__(self, settings: Any, config: Any):
            self.settings = settings
            self.config = config


# The published program finds a plugin by the name of its folder, which may be a link called `m3s`.
PLUGIN_NAME = os.path.basename(os.path.dirname(os.path.abspath(__file__)))
PLUGIN_CLASS = "Fw"
VERSION = "0.1.0"
SHORT_HELP = "Controls frameworks that run Kubernetes on the cluster"

#: The timeout of a request in seconds, unless `timeout` in [agent] is set.
TIMEOUT = 30

NAME = "<framework-name>"


def _command(short: str, long: str = "", arguments: tuple[str, ...] = (NAME,), **more: Any) -> dict[str, Any]:
    flags = more.pop("flags", {})
    return {
        "arguments": list(arguments),
        "flags": flags,
        "short_help": short,
        "long_help": long or short,
        **more,
    }


CONFIG = "Print the client configuration of the orchestrator"
COMMANDS: dict[str, dict[str, Any]] = {
    "cluster": _command(
        "Stop, start or restart the whole orchestrator",
        "The operation is stop, start or restart.",
        (NAME, "<operation>"),
    ),
    "kubeconfig": _command(CONFIG, "The same as orchconfig.", alias="orchconfig"),
    "list": _command(
        "List frameworks that run an orchestrator",
        "These are the ones whose name contains fw or m3s,\nand those with a section [fw.NAME] in the configuration.",
        (),
        flags={"-a --all": "Also frameworks that are not active."},
    ),
    "orchconfig": _command(CONFIG, "It has the keys of an administrator, and is what kubectl reads."),
    "scale": _command(
        "Set how many instances of a service run",
        "Prints the difference to the number before.",
        (NAME, "<count>"),
        flags={
            "-a --agent": "The agents of the orchestrator.",
            "-e --kvstore": "The datastore, where it is a key-value store.",
            "--etcd": "The same as --kvstore.",
            "-m --manager": "The servers of the orchestrator.",
        },
    ),
    "status": _command(
        "Show the status of tasks and of the orchestrator",
        "Without an option, both.",
        flags={
            "-k --orch": "Status of the orchestrator: ok or nok.",
            "--kubernetes": "The same as --orch.",
            "-m --fw": "Status of the framework's tasks, as JSON.",
            "--m3s": "The same as --fw.",
        },
    ),
    "version": _command("Show the versions of orchestrator and framework"),
}

OPERATIONS = {
    "stop": ("shutdown", "Shutdown"),
    "start": ("start", "Start"),
    "restart": ("restart", "Restart"),
}
HEADINGS = ("ID", "Active", "WebUI", "Name")


class Fw(PluginBase):  # type: ignore[misc]
    """The command group `fw`."""

    COMMANDS = COMMANDS

    def _cluster(self) -> Cluster:
        config = self.config
        settings = config if isinstance(config, Settings) else Settings(config.data, config.path, config.master)
        agent = settings.data.get("agent")
        timeout = agent.get("timeout", TIMEOUT) if isinstance(agent, dict) else TIMEOUT
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout > 0:
            raise CommandError(f"{settings.path}: `timeout` in [agent] is not a positive number of seconds")
        return Cluster(settings, timeout)

    def list(self, argv: dict[str, Any]) -> None:
        """Prints the frameworks as a table."""
        cluster = self._cluster()
        rows = [HEADINGS]
        for one in cluster.frameworks():
            if cluster.is_ours(one) and (argv["--all"] or one.active):
                rows.append((shown(one.id), str(one.active), shown(one.webui_url), shown(one.name)))
        widths = [max(map(len, column)) + 2 for column in zip(*rows)]
        for row in rows:
            print("".join(cell.ljust(width) for cell, width in zip(row, widths)))

    def orchconfig(self, argv: dict[str, Any]) -> None:
        """Prints the client configuration."""
        text = self._cluster().api(argv[NAME]).send("GET", "server/config")
        if not text.strip():
            raise CommandError("the framework has no client configuration yet: its server has not started")
        _tell(text)

    def version(self, argv: dict[str, Any]) -> None:
        """Prints the versions."""
        _tell(self._cluster().api(argv[NAME]).send("GET", "server/version"))

    def status(self, argv: dict[str, Any]) -> None:
        """Prints the status of the framework, then that of the orchestrator."""
        api = self._cluster().api(argv[NAME])
        framework = argv["--fw"] or argv["--m3s"]
        orchestrator = argv["--orch"] or argv["--kubernetes"]
        both = not framework and not orchestrator
        if framework or both:
            _tell(api.send("GET", "status/fw"))
        if orchestrator or both:
            _tell(api.send("GET", "status/orch"))

    def scale(self, argv: dict[str, Any]) -> None:
        """Sets the number of instances of each chosen service."""
        # In the order of dependencies: agents need servers, and servers need the datastore.
        services = (
            (argv["--kvstore"] or argv["--etcd"], "kvstore", "kvstore"),
            (argv["--manager"], "manager", "server"),
            (argv["--agent"], "agent", "agent"),
        )
        chosen = [(name, service) for wanted, name, service in services if wanted]
        count = argv["<count>"]
        if not (count.isascii() and count.isdigit()):
            raise CommandError(f"the count is '{shown(count)}': expected a number, 0 or more")
        if not chosen:
            print("Nothing to scale")
            return
        api = self._cluster().api(argv[NAME])
        for name, service in chosen:
            answer = api.send("GET", f"{service}/scale/{int(count)}")
            print(f"Scale up/down {name}")
            _tell(answer)

    def cluster(self, argv: dict[str, Any]) -> None:
        """Stops, starts or restarts the orchestrator."""
        operation = argv["<operation>"]
        if operation not in OPERATIONS:
            raise CommandError(
                f"unknown cluster operation '{shown(operation)}'; expected one of {', '.join(OPERATIONS)}"
            )
        path, word = OPERATIONS[operation]
        answer = self._cluster().api(argv[NAME]).send("PUT", f"cluster/{path}")
        print(f"{word} Kubernetes Cluster")
        _tell(answer)


def _tell(text: str) -> None:
    """Prints a body. Hidden characters are escaped for a terminal; a file receives the unchanged body."""
    text = text.rstrip("\n")
    print("\n".join(map(shown, text.split("\n"))) if sys.stdout.isatty() else text)
