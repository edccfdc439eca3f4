"""The commands without the published program: their command line."""

from __future__ import annotations

import argparse
import sys

from .config import Settings
from .errors import CommandError
from .plugin import COMMANDS, SHORT_HELP, VERSION, Fw


def parser() -> argparse.ArgumentParser:
    """A parser for the commands and options in `COMMANDS`; options may also follow arguments."""
    top = argparse.ArgumentParser(prog="fw", description=SHORT_HELP)
    top.add_argument("--version", action="version", version=VERSION)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in sorted(COMMANDS.items()):
        one = commands.add_parser(name, help=command["short_help"], description=command["long_help"])
        for flags, text in command["flags"].items():
            one.add_argument(*flags.split(), dest=flags.split()[-1], action="store_true", help=text)
        for argument in command["arguments"]:
            one.add_argument(argument, metavar=argument.strip("<>").upper())
    return top


def main() -> None:
    """Runs the command that the command line names."""
    arguments = vars(parser().parse_args())
    command = arguments.pop("command")
    try:
        getattr(Fw(None, Settings.read()), COMMANDS[command].get("alias", command))(arguments)
    except CommandError as error:
        sys.exit(f"Error: {error}.")
