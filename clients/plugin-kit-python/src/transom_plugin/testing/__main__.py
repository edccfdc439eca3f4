"""``python -m transom_plugin.testing APP.py CASES [--manifest NAME.toml] [--json]``: runs recorded cases on
the plugin that a file exports. Exit code 1: a case did not pass."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import sys
from pathlib import Path

from transom_plugin.plugin import InvalidConfig, Plugin
from transom_plugin.testing import CasesError, run


def _plugin(path: Path) -> type[Plugin]:
    """Returns the plugin class that the file defines; there must be exactly one."""
    sys.path.insert(0, str(path.parent))
    module = importlib.import_module(path.stem)
    found = [
        it
        for it in vars(module).values()
        if isinstance(it, type) and issubclass(it, Plugin) and it.__module__ == path.stem
    ]
    if len(found) != 1:
        raise CasesError(f"{path}: found {len(found)} classes of plugins, expected one")
    return found[0]


def main() -> int:
    """Runs the command; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m transom_plugin.testing", description=__doc__)
    parser.add_argument("app", type=Path, help="the module with the plugin's class, such as src/app.py")
    parser.add_argument("cases", type=Path, help="NAME.toml or NAME.json")
    parser.add_argument("--manifest", type=Path, help="the manifest, for the configuration in it")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    arguments = parser.parse_args()
    try:
        reports = run(_plugin(arguments.app), arguments.cases, manifest=arguments.manifest)
    except (CasesError, InvalidConfig, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps([dataclasses.asdict(it) for it in reports]))
    else:
        for it in reports:
            print(f"{it.verdict:8}{it.name}" + (f": {it.reason}" if it.reason else ""))
    return 0 if all(it.verdict == "passed" for it in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
